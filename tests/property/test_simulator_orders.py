"""Each plain order in the compiled simulator and in its twin, on batches that wait."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from simulated import batches, models, outcome_of, prepare, runs

from coresched.errors import InputError
from coresched.lab.simulator.model import WorkerModel
from coresched.lab.simulator.orders.registry import PLAIN_ORDERS
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.twin.cluster import Cluster as TwinCluster
from coresched.trajectory.schema import Trajectory


@pytest.mark.parametrize("order", PLAIN_ORDERS)
@given(batches(), runs(), models())
@hypothesis_settings(max_examples=40, deadline=None)
def test_compiled_and_twin_count_the_same(
    order: str, trajectories: list[Trajectory], run: RunSettings, model: WorkerModel
) -> None:
    run = replace(run, worker_policy=order, workers=min(run.workers, 2))
    try:
        prepared = prepare(trajectories, run, model)
    except InputError:
        assume(False)
    assert outcome_of(trajectories, run, model) == TwinCluster(*prepared).run()
