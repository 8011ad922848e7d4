"""Where a coordinator is started anew, in a Ray cluster of two nodes."""

from typing import Any

import pytest
from integration.ray_cluster.scenario_runs import run_scenarios

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_scenarios("node_scenarios.py", tmp_path_factory.mktemp("nodes"))


def test_it_stays_on_the_node_of_its_journal(results: dict[str, Any]) -> None:
    assert results["stays"] == {"at home": True, "finished": 2}


def test_with_a_shared_journal_it_goes_on_on_another_node(results: dict[str, Any]) -> None:
    assert (results["moves"]["moved"], results["moves"]["worker"]) == (True, "w0")
    assert results["moves"]["finished"] == 2
