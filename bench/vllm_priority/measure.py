"""Runs in the environment of vLLM and prints what was measured, a JSON object a line.

`python -m bench.vllm_priority.measure [--quick]`, started by `bench/measuring.py`, which says what lines.
"""

import gc
import json
import os
import platform
import sys
import tempfile
from functools import partial
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

    from bench.vllm_policies.longest_prefix_match import LongestPrefixMatch
    from bench.vllm_priority import engines, passes
    from bench.vllm_priority.steps import TimedSteps, parts_of

    put(lines, doing="the block pools")
    workload = engines.Workload(max(sizes))
    make = partial(engines.made_engine, folder, workload)
    schedulers = {
        names.FCFS: partial(make, None),
        names.PRIORITY: partial(make, None, "priority"),
        names.LPM: partial(make, LongestPrefixMatch),
        names.RP: partial(make, coresched_vllm.RoutingPrefix),
        names.RP_ALONE: partial(make, coresched_vllm.RoutingPrefix, one_state_per_trajectory=False),
        names.RESIDENCY: partial(make, coresched_vllm.RoutingResidency),
    }
    made = {name: making() for name, making in schedulers.items()}
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
    steps = {name: TimedSteps(engine, parts_of(engine.scheduler)) for name, engine in made.items()}
    waiting = 0
    for size in sizes:
        put(lines, doing=f"{size:,} waiting, whole steps")
        for each in steps.values():
            each.wait(workload.requests[waiting:size])
        waiting = size
        taken = interleaved([each.timing for each in steps.values()], effort.repeats)
        for (name, each), samples in zip(steps.items(), taken, strict=True):
            for policy, found in ((name, samples), *each.parts.items()):
                put(lines, row={"waiting": size, "case": names.STEP, "policy": policy, "samples_s": [*found]})
            for found in each.parts.values():
                found.clear()
    orders = passes.passes_of(*(made[name].scheduler for name in (names.LPM, names.RP, names.RESIDENCY)))
    for size in sizes:
        put(lines, doing=f"{size:,} waiting")
        timings = list(passes.timings(orders, workload.queue(size), effort))
        taken = interleaved([timing for _, _, timing in timings], effort.repeats)
        for (case, name, _), samples in zip(timings, taken, strict=True):
            put(lines, row={"waiting": size, "case": case, "policy": name, "samples_s": samples})


def put(lines: IO[str], **line: object) -> None:
    lines.write(json.dumps(line) + "\n")
    lines.flush()


if __name__ == "__main__":
    sys.exit(main())
