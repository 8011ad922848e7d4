"""Tools of the real verl inside environment slots, in rollouts that are tasks of a Ray actor."""

from typing import Any

import pytest
from integration.ray_cluster.scenario_runs import run_scenarios

ROLLOUTS = 12

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_scenarios("tool_scenarios.py", tmp_path_factory.mktemp("tools"))


def test_tools_of_one_sample_share_a_slot_and_samples_do_not(results: dict[str, Any]) -> None:
    assert results["rollouts"]["most samples"] == 2  # environment_concurrency
    assert results["rollouts"]["most of a sample"] == 3
    assert results["rollouts"]["stages"] == 2 * ROLLOUTS
    assert results["rollouts"]["finished"] == ROLLOUTS


def test_a_model_call_of_a_tool_is_no_turn(results: dict[str, Any]) -> None:
    assert results["rollouts"]["model calls"] == 3 * ROLLOUTS
    assert results["rollouts"]["turns"] == 2 * ROLLOUTS


def test_what_a_tool_raises_or_returns_is_its_own(results: dict[str, Any]) -> None:
    assert results["rollouts"]["texts"] == [
        ["Error executing tool: no such page", f"found for r{number}", f"found for r{number}"]
        for number in range(ROLLOUTS)
    ]


def test_a_tool_outside_of_any_sample_ends_the_run_instead_of_answering_the_model(
    results: dict[str, Any],
) -> None:
    assert "GateFailure: execute was called outside of any sample of the batch" in results["outside"]


def test_a_tool_can_be_told_whose_it_is(results: dict[str, Any]) -> None:
    assert (results["plain"]["stages"], results["plain"]["calls"]) == (1, 3)


def test_what_cannot_be_gated_is_refused(results: dict[str, Any]) -> None:
    assert results["plain"]["refused"] == [
        " is gated already; leave one of the two out",
        " has no method execute; give what the rollout calls it on",
    ]
