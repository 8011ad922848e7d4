"""The driver of lockstep runs against the simulator, on the same workers: every number is the same."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from simulated import batches, models, prepare, runs, settings
from stepped_workers import SteppedTwins, TiesNoticed

from coresched.errors import InputError
from coresched.lab.simulator.lockstep.cluster import LockstepCluster
from coresched.lab.simulator.model import DEFAULT_MODEL, WorkerModel, load_worker_model
from coresched.lab.simulator.routers.registry import ROUTERS_BY_FIRST_TOKENS
from coresched.lab.simulator.settings import Routing, RunSettings
from coresched.trajectory.generator import generate
from coresched.trajectory.schema import Trajectory


@given(batches(), runs(), models(), st.sampled_from([0.0, 1e-3, 0.05, 3.0]))
@hypothesis_settings(max_examples=150, deadline=None)
def test_lockstep_and_the_simulator_count_the_same(
    trajectories: list[Trajectory], run: RunSettings, model: WorkerModel, turnaround_s: float
) -> None:
    assume(run.routing not in ROUTERS_BY_FIRST_TOKENS)
    run = replace(run, release_finished=False)
    times = msgspec.structs.replace(model.times, turnaround_s=turnaround_s)
    model = msgspec.structs.replace(model, times=times)
    try:
        prepared = prepare(trajectories, run, model)
    except InputError:
        assume(False)
    twin = TiesNoticed(*prepared)
    expected = twin.run()
    assume(not twin.tie)
    workload, *_ = prepared
    cluster = LockstepCluster(workload, run, times, SteppedTwins(*prepared))
    counted = cluster.run()
    # What the workers of a lockstep run do not say, or say later, which adds up in another order.
    assert counted.ttft_s == pytest.approx(expected.ttft_s, rel=1e-9)
    unsaid = {"priority_s": None, "evictions": None, "decode_steps": None}
    other = {"ttft_s": counted.ttft_s, "events": counted.events}
    assert counted == replace(expected, **unsaid, **other)


@pytest.mark.parametrize("routing", ROUTERS_BY_FIRST_TOKENS)
def test_a_router_that_needs_first_tokens_is_refused(routing: Routing) -> None:
    run = settings(workers=2, routing=routing)
    model = load_worker_model(DEFAULT_MODEL)
    prepared = prepare(list(generate("swe", 2, seed=1)), run, model)
    with pytest.raises(InputError, match=f"routing is '{routing}', which decides by first tokens"):
        LockstepCluster(prepared[0], run, model.times, SteppedTwins(*prepared))


def test_engines_cannot_be_told_who_has_finished() -> None:
    run = settings(release_finished=True)
    model = load_worker_model(DEFAULT_MODEL)
    prepared = prepare(list(generate("swe", 2, seed=1)), run, model)
    with pytest.raises(InputError, match="release_finished is True, but workers that are engines"):
        LockstepCluster(prepared[0], run, model.times, SteppedTwins(*prepared))
