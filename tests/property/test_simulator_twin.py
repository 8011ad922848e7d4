"""The compiled simulator against its plain-Python twin, and what must hold in every run."""

from dataclasses import replace
from fractions import Fraction
from random import Random

import msgspec
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from simulated import batches, models, outcome_of, prepare, runs, settings, small_model, trajectory

from coresched.errors import InputError
from coresched.lab.bounds import lower_bounds
from coresched.lab.simulator.memory import SLOT_UNITS
from coresched.lab.simulator.model import StepTimes, WorkerModel
from coresched.lab.simulator.settings import (
    EVICTION_POLICIES,
    POOL_POLICIES,
    RESIDENCY_POLICIES,
    WORKER_POLICIES,
    EvictionPolicy,
    PoolPolicy,
    RunSettings,
    WorkerPolicy,
)
from coresched.lab.simulator.twin.cluster import Cluster as TwinCluster
from coresched.lab.simulator.twin.pools import CachePools
from coresched.lab.simulator.twin.worker import SimulatedWorker
from coresched.trajectory.schema import Environment, Trajectory, Turn


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


def memory_lost(pools: CachePools) -> Fraction:
    """Pages by which the two pools are smaller than they began."""
    memory = pools.memory
    pages = Fraction(memory.pages - pools.pages)
    if memory.slot_tokens is None:
        return pages + memory.slot_units - pools.slot_units
    slots = Fraction(memory.slot_units - pools.slot_units, SLOT_UNITS)
    return pages + slots * memory.slot_tokens / memory.page_tokens


class WatchedWorker(SimulatedWorker):
    """Recounts its pools from scratch at every step boundary."""

    def _next_step(self, t: float) -> None:
        pools = self.pools
        running = set(pools.tokens) - set(pools.idle)
        assert len(running) == len(self.running) + (self.partial is not None)
        own = sum(pools.own_pages(sample, tokens) for sample, tokens in pools.tokens.items())
        groups = {pools.group[sample]: pools.shared_pages(sample) for sample in pools.tokens}
        assert pools.used_pages == own + sum(groups.values())
        assert pools.used_pages <= pools.pages
        slots = len(pools.idle) * SLOT_UNITS + len(running) * pools.memory.running_slot_units
        assert pools.used_slot_units == slots <= pools.slot_units
        assert pools.committed_pages <= pools.pages
        assert 0 <= memory_lost(pools) < 1
        assert len(self.running) <= self.memory.max_running
        super()._next_step(t)


class WatchedCluster(TwinCluster):
    worker_class = WatchedWorker


def pressed(seed: int) -> list[Trajectory]:
    """Fourteen trajectories that together need several times a small worker's memory."""
    rng = Random(seed)
    tools = (None, "bash", "user")
    return [
        Trajectory(
            id=f"t{number}",
            initial_prompt_tokens=rng.randint(100, 600),
            shared_prefix_tokens=rng.choice([0, 90]),
            group=rng.choice(["a", "b"]),
            turns=tuple(
                Turn(
                    output_tokens=rng.randint(1, 120),
                    env=Environment(
                        duration_s=rng.choice([0.0, 0.5, 5.0]),
                        response_tokens=rng.randint(0, 200),
                        kind=rng.choice(tools),
                    ),
                )
                for _ in range(rng.randint(2, 6))
            ),
        )
        for number in range(14)
    ]


@given(
    st.integers(0, 10**6),
    st.sampled_from(EVICTION_POLICIES),
    st.sampled_from(POOL_POLICIES),
    st.sampled_from(WORKER_POLICIES),
    st.integers(1, 2),
    st.sampled_from([300, 900, 2_500]),
    st.sampled_from([1, 16]),
)
@hypothesis_settings(max_examples=150, deadline=None)
def test_under_pressure_both_evict_and_move_the_same(
    seed: int,
    eviction: EvictionPolicy,
    pool: PoolPolicy,
    order: WorkerPolicy,
    workers: int,
    state_tokens: int,
    page_tokens: int,
) -> None:
    model = small_model(request_state_tokens=state_tokens, page_tokens=page_tokens)
    run = settings(
        workers=workers,
        sample_concurrency=14,
        worker_policy=order,
        eviction_policy=eviction,
        pool_policy=pool,
    )
    batch = pressed(seed)
    assert outcome_of(batch, run, model) == WatchedCluster(*prepare(batch, run, model)).run()


@given(batches(), runs(), models())
@hypothesis_settings(max_examples=150, deadline=None)
def test_pools_never_overflow(trajectories: list[Trajectory], run: RunSettings, model: WorkerModel) -> None:
    assume(fits(trajectories, run, model))
    WatchedCluster(*prepare(trajectories, run, model)).run()
