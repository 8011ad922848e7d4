"""Runs in SGLang's environment: `python -m bench.coalescing.sglang_program [--quick]`.

Prints a JSON object a line, see `bench.measuring`: a row for each run of one batch on SGLang's own scheduler
in virtual time. Each run is a process of its own, a fork of this one, which has imported SGLang.
"""

import os
import sys
import tempfile
from collections import Counter
from itertools import product
from pathlib import Path
from time import thread_time
from typing import IO, Any

import msgspec
from coresched_engine.virtual.device import STEP_TIMES
from coresched_simdevice import configuration
from coresched_simdevice.virtual.boot import load_sglang
from coresched_simdevice.virtual.engine import VirtualEngine

from bench.coalescing.setups import BATCH, FIXED_COSTS_S, QUICK_BATCH, VARIANTS, Variant, costing
from bench.coalescing.stepped import OneEngine
from bench.sglang_policies.models import write_model
from bench.sglang_policies.setups import SetUp
from bench.sglang_priority.measure import own_stdout, put
from coresched.errors import InputError
from coresched.lab.metrics import measure
from coresched.lab.simulator.lockstep.cluster import LockstepCluster
from coresched.lab.simulator.model import load_worker_model
from coresched.lab.simulator.settings import EngineSettings
from coresched.lab.simulator.workload import build_workload

MODEL = "ling-3.0-flash"
SEEDS = 2


class Watched:
    """Counts the engine's forwards, and the CPU time that its scheduler takes between two of them."""

    def __init__(self, scheduler: Any) -> None:
        self.forwards: Counter[str] = Counter()
        self.prefilled: list[int] = []
        """Requests of each prefill batch."""
        self.cpu_s: dict[str, list[float]] = {}
        """By what kind of forward follows."""
        self._run_batch, scheduler.run_batch = scheduler.run_batch, self._watched
        self._since: float | None = None  # of the scheduler's own thread

    def _watched(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        result = self._run_batch(batch, *args, **kwargs)
        now = thread_time()
        mode = batch.forward_mode.name.lower()
        self.forwards[mode] += 1
        if self._since is not None:
            self.cpu_s.setdefault(mode, []).append(now - self._since)
        if mode != "decode":
            self.prefilled.append(len(batch.reqs) - len(batch.decoding_reqs or ()))
        self._since = now
        return result


def run_one(setup: SetUp, fixed_s: float, variant: Variant, seed: int, folder: Path) -> dict[str, Any]:
    """One batch on the one engine of this process."""
    times = folder / "step-times.json"
    times.write_bytes(msgspec.json.encode(costing(load_worker_model(), fixed_s)))
    os.environ[STEP_TIMES] = str(times)
    configuration.device.cache_clear()  # of the process that this one was forked from
    engine = VirtualEngine(
        {**setup.server_args(), "model_path": str(write_model(MODEL, folder)), **variant.server_args}
    )
    watched = Watched(engine.scheduler)
    batch = setup.trajectories(seed)
    workload = build_workload(batch, page_tokens=1)
    settings = EngineSettings(
        name=variant.name,
        workers=1,
        sample_concurrency=setup.sample_concurrency,
        environment_concurrency=None,
        state_ratio=1.0,
        label_capacity=1,
        worker_policy="fcfs",
        routing="round-robin",
        returns_held=variant.returns_held,
    )
    worker = OneEngine(engine, engine.vocabulary_size, batch, workload)
    step_times = configuration.device().times
    # Without a gate that pauses, nothing asks for the size of the KV pool.
    metrics = measure(LockstepCluster(workload, settings, step_times, worker, kv_tokens=0).run())
    engine.close()
    return {
        "prefill_batch_s": fixed_s,
        "variant": variant.name,
        "seed": seed,
        "makespan_s": metrics.makespan_s,
        "ttft_s": metrics.ttft_s,
        "forwards": watched.forwards,
        "prefilled": watched.prefilled,
        "cpu_s": watched.cpu_s,
    }


def main() -> int:
    quick = "--quick" in sys.argv[1:]
    lines = own_stdout()
    try:
        import sglang

        load_sglang()
    except (ImportError, InputError) as error:
        put(lines, error=f"{sys.executable!r} must have sglang, and coresched built for it: {error}")
        return 1
    put(lines, engine={"sglang": sglang.__version__, "model": MODEL})
    setup = QUICK_BATCH if quick else BATCH
    for seed, fixed_s, variant in product(range(1 if quick else SEEDS), FIXED_COSTS_S, VARIANTS):
        put(lines, doing=f"SGLang, p0 {fixed_s * 1e3:.0f} ms, {variant.name}, batch {seed + 1}")
        if not _in_a_fork(lines, setup, fixed_s, variant, seed):
            return 1
    return 0


def _in_a_fork(lines: IO[str], setup: SetUp, fixed_s: float, variant: Variant, seed: int) -> bool:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with tempfile.TemporaryDirectory() as folder:
                put(lines, row=run_one(setup, fixed_s, variant, seed, Path(folder)))
            code = 0
        finally:
            if code:
                sys.excepthook(*sys.exc_info())
                sys.stderr.flush()
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


if __name__ == "__main__":
    sys.exit(main())
