"""Small simulated worlds for the tests of the lab."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from coresched.lab.simulator.engine.cluster import Cluster
from coresched.lab.simulator.memory import Memory, require_fit, split_memory
from coresched.lab.simulator.model import StepTimes, WorkerModel, load_worker_model
from coresched.lab.simulator.outcome import Outcome
from coresched.lab.simulator.settings import (
    ADMISSION_POLICIES,
    ENVIRONMENT_POLICIES,
    ROUTERS,
    WORKER_POLICIES,
    RunSettings,
)
from coresched.lab.simulator.workload import Workload, build_workload
from coresched.trajectory.schema import Environment, Trajectory, Turn


def trajectory(
    name: str, turns: Sequence[tuple[int, float | None, int]], prompt: int = 50, **fields: Any
) -> Trajectory:
    """``turns`` are (output tokens, environment seconds, response tokens)."""
    return Trajectory(
        id=name,
        initial_prompt_tokens=prompt,
        turns=tuple(
            Turn(
                output_tokens=output,
                env=None if seconds is None else Environment(duration_s=seconds, response_tokens=response),
            )
            for output, seconds, response in turns
        ),
        **fields,
    )


def small_model(**changes: Any) -> WorkerModel:
    """The shipped model with a few thousand KV tokens: 6000 tokens and 60 slots at a state ratio of 1."""
    fields = {"pool_tokens": 12_000, "request_state_tokens": 300, "prefill_chunk_tokens": 256}
    return msgspec.structs.replace(load_worker_model(), **(fields | changes))


def free_scheduling(model: WorkerModel) -> WorkerModel:
    """The same worker with an ordering of the waiting queue that takes no time."""
    times = msgspec.structs.replace(
        model.times, match_s=0.0, match_token_s=0.0, tree_node_s=0.0, queue_entry_s=0.0
    )
    return msgspec.structs.replace(model, times=times)


def settings(**changes: Any) -> RunSettings:
    fields: dict[str, Any] = {
        "name": "test",
        "workers": 1,
        "sample_concurrency": 8,
        "environment_concurrency": None,
        "state_ratio": 1.0,
        "label_capacity": 4,
        "routing": "round-robin",
    }
    return RunSettings(**(fields | changes))


def prepare(
    trajectories: Sequence[Trajectory], run: RunSettings, model: WorkerModel
) -> tuple[Workload, RunSettings, WorkerModel, Memory]:
    workload = build_workload(trajectories, page_tokens=model.page_tokens, seed=run.seed)
    memory = split_memory(model, run.state_ratio)
    require_fit(workload, memory)
    return workload, run, model, memory


def outcome_of(trajectories: Sequence[Trajectory], run: RunSettings, model: WorkerModel) -> Outcome:
    cluster = Cluster(*prepare(trajectories, run, model))
    while cluster.advance(1_000_000):
        pass
    return cluster.outcome()


@st.composite
def batches(draw: st.DrawFn) -> list[Trajectory]:
    """One to fourteen trajectories that fit a worker of `small_model`."""
    result = []
    for number in range(draw(st.integers(1, 14))):
        prompt = draw(st.integers(1, 600))
        count = draw(st.integers(1, 6))
        turns = []
        for position in range(count):
            output = draw(st.integers(1, 120))
            last = position == count - 1
            duration = draw(st.one_of(st.just(0.0), st.floats(0.0, 40.0)))
            environment = Environment(duration_s=duration, response_tokens=draw(st.integers(0, 200)))
            turns.append(
                Turn(
                    output_tokens=output,
                    kept_tokens=draw(st.one_of(st.none(), st.integers(0, output))),
                    env=None if last and draw(st.booleans()) else environment,
                )
            )
        result.append(
            Trajectory(
                id=f"t{number}",
                initial_prompt_tokens=prompt,
                shared_prefix_tokens=draw(st.integers(0, prompt)) if draw(st.booleans()) else 0,
                group=draw(st.sampled_from([None, "a", "b"])),
                turns=tuple(turns),
            )
        )
    return result


@st.composite
def models(draw: st.DrawFn) -> WorkerModel:
    """Workers around the size where memory begins to bind, with any step times."""
    seconds = st.floats(0.0, 0.1)
    model = small_model(
        pool_tokens=draw(st.integers(9_000, 40_000)),
        page_tokens=draw(st.sampled_from([1, 1, 16, 64])),
        prefill_chunk_tokens=draw(st.sampled_from([64, 256, 8192])),
        running_request_slots=draw(st.sampled_from([1.0, 2.5, 2.9, 3.0])),
        overlap_schedule=draw(st.booleans()),
        max_running_requests=draw(st.sampled_from([1, 2, 5, 4096])),
    )
    if draw(st.booleans()):
        times = {
            name: draw(seconds) for name in StepTimes.__struct_fields__ if name != "decode_knee_sequences"
        }
        times["decode_step_s"] = draw(st.floats(0.001, 0.1))
        times["decode_context_token_s"] = draw(st.one_of(st.just(0.0), st.floats(0.0, 1e-5)))
        model = msgspec.structs.replace(
            model, times=StepTimes(decode_knee_sequences=draw(st.integers(0, 6)), **times)
        )
    return model


@st.composite
def runs(draw: st.DrawFn) -> RunSettings:
    return settings(
        workers=draw(st.integers(1, 4)),
        sample_concurrency=draw(st.integers(1, 16)),
        environment_concurrency=draw(st.one_of(st.none(), st.integers(1, 4))),
        state_ratio=draw(st.floats(0.3, 1.5)),
        label_capacity=draw(st.integers(1, 8)),
        worker_policy=draw(st.sampled_from(WORKER_POLICIES)),
        routing=draw(st.sampled_from(ROUTERS)),
        environment_policy=draw(st.sampled_from(ENVIRONMENT_POLICIES)),
        admission_policy=draw(st.sampled_from(ADMISSION_POLICIES)),
        expectation_noise=draw(st.sampled_from([0.0, 0.6])),
        load_bound=draw(st.sampled_from([1.0, 1.25, 2.0])),
        band_s=draw(st.floats(0.1, 100.0)),
        release_finished=draw(st.booleans()),
        seed=draw(st.integers(0, 3)),
    )
