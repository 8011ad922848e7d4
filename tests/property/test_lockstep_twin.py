"""The driver of lockstep runs against the simulator, on the same workers: every number is the same."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from simulated import batches, models, prepare, runs
from stepped_workers import SteppedTwins, TiesNoticed

from coresched.errors import InputError
from coresched.lab.simulator.lockstep.cluster import LockstepCluster
from coresched.lab.simulator.model import WorkerModel
from coresched.lab.simulator.settings import RunSettings
from coresched.trajectory.schema import Trajectory


@given(batches(), runs(), models(), st.sampled_from([0.0, 1e-3, 0.05, 3.0]))
@hypothesis_settings(max_examples=150, deadline=None)
def test_lockstep_and_the_simulator_count_the_same(
    trajectories: list[Trajectory], run: RunSettings, model: WorkerModel, turnaround_s: float
) -> None:
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
