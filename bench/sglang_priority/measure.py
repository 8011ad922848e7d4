"""Runs in the environment of SGLang and prints what was measured, a JSON object a line.

`python -m bench.sglang_priority.measure [--quick]`, started by `bench/measuring.py`, which says what lines.
"""

import gc
import json
import os
import platform
import sys
from typing import IO

from bench.timing import Effort, interleaved

RESIDENT = 100
FULL_SIZES, QUICK_SIZES = (100, 1_000, 10_000), (100, 1_000)
FULL, QUICK = Effort(repeats=7, repeat_s=0.02), Effort(repeats=3, repeat_s=0.005)


def main() -> int:
    lines = own_stdout()
    is_quick = "--quick" in sys.argv[1:]
    try:
        import coresched_sglang.routing_prefix  # noqa: F401
        import sglang
    except ImportError as error:
        put(lines, error=f"{sys.executable!r} must have sglang, and coresched built for it: {error}")
        return 1
    measure(lines, sglang.__version__, QUICK_SIZES if is_quick else FULL_SIZES, QUICK if is_quick else FULL)
    return 0


def measure(lines: IO[str], sglang_version: str, sizes: tuple[int, ...], effort: Effort) -> None:
    import logging

    from bench.sglang_priority.policies import RUNNING, Queues, timings
    from bench.sglang_priority.tree import ResidentTree, publish_flags
    from bench.sglang_priority.waiting import LONGEST, SHORTEST, Workload

    logging.disable(logging.WARNING)
    put(lines, doing="the tree")
    publish_flags()
    workload = Workload(RESIDENT, max(sizes))
    tree = ResidentTree(workload.contexts)
    put(
        lines,
        engine={
            "sglang": sglang_version,
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "tree": type(tree.cache.tree_core).__name__,
            "resident": RESIDENT,
            "resident_tokens": tree.tokens,
            "shortest": SHORTEST,
            "longest": LONGEST,
            "repeats": effort.repeats,
        },
    )
    gc.collect()
    gc.freeze()  # the collection before each timing need not walk the engine
    for size in sizes:
        put(lines, doing=f"{size:,} waiting")
        queues = Queues(workload.queue(size), tree.cache, workload.running(RUNNING), workload.labels)
        named = list(timings(queues, effort))
        taken = interleaved([timing for _, timing in named], effort.repeats)
        for (name, _), samples in zip(named, taken, strict=True):
            put(lines, row={"waiting": size, "policy": name, "samples_s": samples})


def own_stdout() -> IO[str]:
    """Standard output for the lines alone: what SGLang prints goes to standard error."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return lines


def put(lines: IO[str], **line: object) -> None:
    lines.write(json.dumps(line) + "\n")
    lines.flush()


if __name__ == "__main__":
    sys.exit(main())
