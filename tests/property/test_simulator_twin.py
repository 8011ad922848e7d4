"""The compiled simulator against its plain-Python twin, and what must hold in every run."""

from dataclasses import replace

import msgspec
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from simulated import batches, models, outcome_of, prepare, runs, settings, small_model, trajectory

from coresched.errors import InputError
from coresched.lab.bounds import lower_bounds
from coresched.lab.simulator.memory import SLOT_UNITS
from coresched.lab.simulator.model import StepTimes, WorkerModel
from coresched.lab.simulator.settings import RESIDENCY_POLICIES, RunSettings
from coresched.lab.simulator.twin.cluster import Cluster as TwinCluster
from coresched.lab.simulator.twin.worker import SimulatedWorker
from coresched.trajectory.schema import Trajectory


def fits(trajectories: list[Trajectory], run: RunSettings, model: WorkerModel) -> bool:
    try:
        prepare(trajectories, run, model)
    except InputError:
        return False
    return True


@given(batches(), runs(), models())
@hypothesis_settings(max_examples=400, deadline=None)
def test_compiled_and_twin_count_the_same(
    trajectories: list[Trajectory], run: RunSettings, model: WorkerModel
) -> None:
    assume(fits(trajectories, run, model))
    assert outcome_of(trajectories, run, model) == TwinCluster(*prepare(trajectories, run, model)).run()


@given(batches(), runs(), models(), st.sampled_from(RESIDENCY_POLICIES), st.sampled_from([2, 3]))
@hypothesis_settings(max_examples=300, deadline=None)
def test_so_they_do_where_trajectories_are_held_back_and_spared(
    trajectories: list[Trajectory], run: RunSettings, model: WorkerModel, policy: str, share: int
) -> None:
    run = replace(run, worker_policy=policy, workers=1, sample_concurrency=16)
    model = msgspec.structs.replace(model, pool_tokens=model.pool_tokens // share)
    assume(fits(trajectories, run, model))
    assert outcome_of(trajectories, run, model) == TwinCluster(*prepare(trajectories, run, model)).run()


def test_an_arrival_ends_a_run_where_a_step_costs_next_to_nothing_for_its_context() -> None:
    zero = dict.fromkeys(StepTimes.__struct_fields__, 0.0) | {"decode_knee_sequences": 0}
    times = StepTimes(**zero | {"decode_step_s": 0.25, "decode_context_token_s": 1e-60})
    model = small_model(times=times, overlap_schedule=False)
    trajectories = [
        trajectory("long", [(40, None, 0)]),
        trajectory("late", [(1, 3.1, 1), (1, None, 0)], prompt=1),
    ]
    outcome = outcome_of(trajectories, settings(sample_concurrency=2), model)
    assert outcome.completed_s == [3.25, 9.75]


@given(batches(), runs(), models())
@hypothesis_settings(max_examples=150, deadline=None)
def test_conservation_and_bounds(
    trajectories: list[Trajectory], run: RunSettings, model: WorkerModel
) -> None:
    assume(fits(trajectories, run, model))
    outcome = outcome_of(trajectories, run, model)
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    prompts = [prompt for trajectory in trajectories for prompt in trajectory.prompt_tokens()]
    assert len(outcome.completed_s) == len(trajectories)
    assert outcome.completed_s == sorted(outcome.completed_s)
    assert outcome.requests == len(turns)
    assert sum(outcome.output_tokens) == sum(turn.output_tokens for turn in turns)
    assert outcome.input_tokens == sum(prompts)
    assert outcome.new_prefill_tokens <= outcome.input_tokens
    assert outcome.new_prefill_tokens >= sum(trajectory.initial_prompt_tokens for trajectory in trajectories)
    assert sum(outcome.load_change) == 0
    makespan = outcome.completed_s[-1]
    assert all(busy <= makespan * (1 + 1e-9) for busy in outcome.busy_s)
    workload, _, _, _ = prepare(trajectories, run, model)
    bounds = lower_bounds(
        workload,
        model,
        workers=run.workers,
        environment_concurrency=run.environment_concurrency,
    )
    assert makespan >= bounds.best * (1 - 1e-9)


class WatchedWorker(SimulatedWorker):
    """Recounts its pools from scratch at every step boundary."""

    def _next_step(self, t: float) -> None:
        pools = self.pools
        running = set(pools.tokens) - set(pools.idle)
        assert len(running) == len(self.running) + (self.partial is not None)
        own = sum(pools.own_pages(sample, tokens) for sample, tokens in pools.tokens.items())
        groups = {pools.group[sample]: pools.shared_pages(sample) for sample in pools.tokens}
        assert pools.used_pages == own + sum(groups.values())
        assert pools.used_pages <= pools.memory.pages
        slots = len(pools.idle) * SLOT_UNITS + len(running) * pools.memory.running_slot_units
        assert pools.used_slot_units == slots <= pools.memory.slot_units
        assert pools.committed_pages <= pools.memory.pages
        assert len(self.running) <= self.memory.max_running
        super()._next_step(t)


class WatchedCluster(TwinCluster):
    worker_class = WatchedWorker


@given(batches(), runs(), models())
@hypothesis_settings(max_examples=150, deadline=None)
def test_pools_never_overflow(trajectories: list[Trajectory], run: RunSettings, model: WorkerModel) -> None:
    assume(fits(trajectories, run, model))
    WatchedCluster(*prepare(trajectories, run, model)).run()
