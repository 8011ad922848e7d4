"""Runs in vLLM's environment: `python -m bench.coalescing.vllm_program [--quick]`.

vLLM whole, with a tiny model on the CPU. Prints a JSON object a line, see `bench.measuring`: rows of steps,
by what they compute, and rows of batches, by how many returning turns were held in front of the engine. The
clock is the process's CPU time, in which no other program of the machine counts.
"""

import gc
import sys
import tempfile
from array import array
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import IO, Any

from msgspec.structs import replace

from bench.coalescing.setups import TINY_BATCH, TINY_QUICK_BATCH
from bench.coalescing.stepped import OneEngine
from bench.coalescing.tiny_engine import RealEngine, cpu_s
from bench.sglang_policies.setups import SetUp
from bench.sglang_priority.measure import own_stdout, put
from coresched.lab.metrics import measure
from coresched.lab.simulator.lockstep.cluster import LockstepCluster
from coresched.lab.simulator.model import load_worker_model
from coresched.lab.simulator.settings import EngineSettings
from coresched.lab.simulator.workload import build_workload

MODEL = "qwen3"
DECODING = 32
TURN_TOKENS = 64
"""New prompt tokens of a turn, in the steps that are timed."""
GROUPS = (1, 4, 8)
"""Turns that are prefilled in one step; returning turns held (1: none)."""


def main() -> int:
    quick = "--quick" in sys.argv[1:]
    lines = own_stdout()
    try:
        import vllm

        from bench.vllm_policies.model_engine import ModelEngine, ModelSettings
    except ImportError as error:
        put(lines, error=f"{sys.executable!r} must have vllm and coresched: {error}")
        return 1
    put(lines, engine={"vllm": vllm.__version__, "model": f"tiny {MODEL}", "decoding": DECODING})
    settings = ModelSettings(
        MODEL, 4_000, max_num_seqs=2 * DECODING, max_num_batched_tokens=8_192, max_model_len=4_096
    )
    with tempfile.TemporaryDirectory() as folder:
        model = ModelEngine(Path(folder), settings)
        _steps(lines, model, repeats=3 if quick else 21)
        setup = TINY_QUICK_BATCH if quick else TINY_BATCH
        for repeat in range(1 if quick else 5):
            # Each round begins with another, for what is first may find a colder machine.
            for held in (*GROUPS[repeat % 3 :], *GROUPS[: repeat % 3]):
                put(lines, doing=f"vLLM, {held} held, round {repeat + 1}")
                put(lines, row=_batch(model, setup, held, repeat))
    return 0


def _steps(lines: IO[str], model: Any, repeats: int) -> None:
    """Steps without and with decoding sequences, and with so many turns' prompts in them."""
    random = Random(0)
    for decoding in (0, DECODING):
        put(lines, doing=f"vLLM, steps of {decoding} decoding")
        for number in range(decoding):
            model.submit(f"decoding-{number}", _tokens(random, TURN_TOKENS), 3_000)
        for _ in range(10 if decoding else 0):
            model.step()
        kinds = ((0,) if decoding else ()) + GROUPS
        taken: dict[int, list[float]] = {turns: [] for turns in kinds}
        for repeat in range(repeats):
            for turns in kinds:
                for number in range(turns):
                    # One token of output: it ends with the step that prefills it.
                    name = f"turn-{decoding}-{repeat}-{turns}-{number}"
                    model.submit(name, _tokens(random, TURN_TOKENS), 1)
                gc.collect()
                began = cpu_s()
                ended = model.step()
                taken[turns].append(cpu_s() - began)
                if len(ended) != turns:
                    raise RuntimeError(f"{len(ended)} of {turns} turns ended with their step")
        for turns, samples in taken.items():
            put(lines, row={"kind": "step", "decoding": decoding, "turns": turns, "samples_s": samples})
        model.abort_all()


def _batch(model: Any, setup: SetUp, held: int, seed: int) -> dict[str, Any]:
    model.forget()
    batch = setup.trajectories(seed)
    workload = build_workload(batch, page_tokens=1)
    settings = EngineSettings(
        name="tiny",
        workers=1,
        sample_concurrency=setup.sample_concurrency,
        environment_concurrency=None,
        state_ratio=1.0,
        label_capacity=1,
        worker_policy="fcfs",
        routing="round-robin",
        returns_held=held,
    )
    times = replace(load_worker_model().times, turnaround_s=0.001, turnaround_token_s=0.0)
    engine = RealEngine(model)
    worker = OneEngine(engine, 256, batch, workload)
    # Without a gate that pauses, nothing asks for the size of the KV pool.
    metrics = measure(LockstepCluster(workload, settings, times, worker, kv_tokens=0).run())
    return {
        "kind": "batch",
        "held": held,
        "seed": seed,
        "makespan_s": metrics.makespan_s,
        "ttft_s": metrics.ttft_s,
        "decode_step_s": engine.decode_step_s,
        "prompt_step_s": engine.prompt_step_s,
    }


def _tokens(random: Random, count: int) -> Sequence[int]:
    return array("q", (3 + byte % 250 for byte in random.randbytes(count)))


if __name__ == "__main__":
    sys.exit(main())
