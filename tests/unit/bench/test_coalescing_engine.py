"""An engine that steps for real, as the worker of a lockstep run: here it counts instead of computing."""

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest
from coresched_vllm.virtual.engine import Finished
from msgspec.structs import replace

from bench.coalescing import tiny_engine
from bench.coalescing.setups import TINY_BATCH
from bench.coalescing.stepped import OneEngine
from coresched.lab.simulator.lockstep.cluster import LockstepCluster
from coresched.lab.simulator.model import load_worker_model
from coresched.lab.simulator.outcome import Outcome
from coresched.lab.simulator.settings import EngineSettings
from coresched.lab.simulator.workload import build_workload

STEP_S = 0.01


class CountingModel:
    """A token for every request in each step, all prompts at once."""

    def __init__(self) -> None:
        self.requests: dict[str, tuple[list[int], int, int]] = {}

    def submit(self, request_id: str, prompt: Sequence[int], output_tokens: int) -> None:
        self.requests[request_id] = (list(prompt), len(prompt), output_tokens)

    def step(self) -> list[Finished]:
        finished = []
        for name, (tokens, prompt, output) in list(self.requests.items()):
            tokens.append(7)
            if len(tokens) == prompt + output:
                del self.requests[name]
                finished.append(Finished(name, tokens, prompt, 0, "length"))
        return finished


def run(held: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Outcome, tiny_engine.RealEngine]:
    ticks = count()
    monkeypatch.setattr(tiny_engine, "cpu_s", lambda: next(ticks) * STEP_S)
    batch = TINY_BATCH.trajectories(0)
    workload = build_workload(batch, page_tokens=1)
    settings = EngineSettings(
        name="test",
        workers=1,
        sample_concurrency=TINY_BATCH.sample_concurrency,
        environment_concurrency=None,
        state_ratio=1.0,
        label_capacity=1,
        routing="round-robin",
        returns_held=held,
    )
    model: Any = CountingModel()
    engine = tiny_engine.RealEngine(model)
    times = replace(load_worker_model().times, turnaround_s=0.001, turnaround_token_s=0.0)
    worker = OneEngine(engine, 256, batch, workload)
    outcome = LockstepCluster(workload, settings, times, worker, kv_tokens=0).run()
    assert sum(outcome.output_tokens) == sum(workload.output_tokens)
    assert len(outcome.completed_s) == len(batch)
    return outcome, engine


def test_every_turn_is_served_and_time_is_that_of_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, engine = run(1, monkeypatch)
    steps = [*engine.decode_step_s, *engine.prompt_step_s]
    assert engine.busy_s == pytest.approx(len(steps) * STEP_S)
    assert engine.busy_s <= outcome.completed_s[-1] * (1 + 1e-9)
    assert engine.prefilled_tokens == outcome.new_prefill_tokens


def test_holding_makes_fewer_steps_with_prompts_and_first_tokens_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (now, alone), (later, together) = run(1, monkeypatch), run(8, monkeypatch)
    assert len(together.prompt_step_s) < len(alone.prompt_step_s) / 2
    assert later.ttft_s > now.ttft_s
