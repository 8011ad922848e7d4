"""Runs in the environment of vLLM and prints what was measured, a JSON object a line.

`python -m bench.vllm_priority.measure [--quick]`, started by `bench/measuring.py`, which says what lines.
"""

import gc
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import IO

from bench.timing import Effort, interleaved
from bench.vllm_priority import names

FULL_SIZES, QUICK_SIZES = (10, 100, 500, 1_000, 2_000), (10, 500)
FULL, QUICK = Effort(repeats=7, repeat_s=0.02), Effort(repeats=3, repeat_s=0.002)


def main() -> int:
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM logs there
    is_quick = "--quick" in sys.argv[1:]
    try:
        from coresched_vllm.virtual.boot import ENVIRONMENT

        os.environ.update(ENVIRONMENT)
        os.environ["PYTHONHASHSEED"] = "0"  # else each engine hashes blocks in its own way
        import vllm
    except ImportError as error:
        put(lines, error=f"{sys.executable!r} must have vllm, and coresched built for it: {error}")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        sizes, effort = (QUICK_SIZES, QUICK) if is_quick else (FULL_SIZES, FULL)
        measure(lines, vllm.__version__, Path(folder), sizes, effort)
    return 0


def measure(lines: IO[str], vllm_version: str, folder: Path, sizes: tuple[int, ...], effort: Effort) -> None:
    import coresched_vllm
    from coresched_vllm.metrics import SharedCounts

    from bench.vllm_policies.longest_prefix_match import LongestPrefixMatch
    from bench.vllm_priority import engines, passes
    from bench.vllm_priority.steps import TimedSteps

    put(lines, doing="the block pools")
    workload = engines.Workload(max(sizes))
    schedulers = {
        names.FCFS: (None, "fcfs"),
        names.PRIORITY: (None, "priority"),
        names.LPM: (LongestPrefixMatch, "fcfs"),
        names.RP: (coresched_vllm.RoutingPrefix, "fcfs"),
    }
    if hasattr(coresched_vllm, "RoutingResidency"):
        schedulers[names.RESIDENCY] = (coresched_vllm.RoutingResidency, "fcfs")
    made = {name: engines.made_engine(folder, workload, *how) for name, how in schedulers.items()}
    for engine in made.values():
        engines.require_resident(engine, workload)
    put(
        lines,
        engine={
            "vllm": vllm_version,
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "model": engines.MODEL,
            "block_tokens": engines.BLOCK_TOKENS,
            "resident": engines.RESIDENT,
            "resident_tokens": workload.tokens,
            "running": engines.RUNNING,
            "repeats": effort.repeats,
        },
    )
    gc.collect()
    gc.freeze()  # the collection before each timing need not walk the engine
    steps = {name: TimedSteps(engine) for name, engine in made.items()}
    waiting = 0
    for size in sizes:
        put(lines, doing=f"{size:,} waiting, whole steps")
        for each in steps.values():
            each.wait(workload.requests[waiting:size])
        waiting = size
        taken = interleaved([each.timing for each in steps.values()], effort.repeats)
        for name, samples in zip(steps, taken, strict=True):
            put(lines, row={"waiting": size, "case": names.STEP, "policy": name, "samples_s": samples})
    kind = type(made[names.RP].scheduler.ordering.counts())
    publisher = SharedCounts(folder / "counts", ("model", "0"), kind)
    found = passes.passes_of(made[names.LPM].scheduler, made[names.RP].scheduler, publisher)
    for size in sizes:
        put(lines, doing=f"{size:,} waiting")
        timings = list(passes.timings(found, workload.queue(size), effort))
        taken = interleaved([timing for _, _, timing in timings], effort.repeats)
        for (case, name, _), samples in zip(timings, taken, strict=True):
            put(lines, row={"waiting": size, "case": case, "policy": name, "samples_s": samples})


def put(lines: IO[str], **line: object) -> None:
    lines.write(json.dumps(line) + "\n")
    lines.flush()


if __name__ == "__main__":
    sys.exit(main())
