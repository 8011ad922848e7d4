"""Routing-residency and one state per trajectory in vLLM's real scheduler, with made-up outputs."""

from copy import deepcopy
from typing import Any

import pytest
from integration.vllm_engine.residency_check import ResidencyCheck
from integration.vllm_engine.scenario_runs import Outcomes, run_scenarios

pytestmark = pytest.mark.vllm

BATCHES = (
    *("residency_under_pressure", "residency_of_dense", "residency_without_pressure"),
    *("residency_with_long_stages", "residency_asynchronous", "residency_in_a_storm"),
)
ORDERS = ("residency_order", "residency_order_of_dense")


@pytest.fixture(scope="module")
def outcomes() -> Outcomes:
    return run_scenarios((*BATCHES, *ORDERS, "working_set", "residency_start"))


@pytest.mark.parametrize("name", BATCHES)
def test_every_order_ends_with_the_same_contexts_and_a_whole_pool(outcomes: Outcomes, name: str) -> None:
    facts = outcomes[name]
    assert len({each["contexts"] for each in facts.values()}) == 1
    assert [fault for each in facts.values() for fault in each["pool"]] == []


@pytest.mark.parametrize("name", ["residency_under_pressure", "residency_of_dense", "residency_asynchronous"])
def test_under_pressure_it_computes_little_twice(outcomes: Outcomes, name: str) -> None:
    facts = outcomes[name]
    assert 4 * facts["residency"]["recomputed"] <= facts["fcfs"]["recomputed"]
    if name != "residency_of_dense":  # of which RP takes the longest prefixes first
        assert facts["residency"]["recomputed"] <= facts["rp"]["recomputed"]


def test_without_pressure_nobody_is_held_back_and_nothing_is_lost(outcomes: Outcomes) -> None:
    facts = outcomes["residency_without_pressure"]
    counts = facts["residency"]["counts"]
    assert (counts["held_back"], counts["lost"], counts["moved_back"]) == (0, 0, 0)
    assert facts["residency"]["recomputed"] == facts["fcfs"]["recomputed"]


def test_with_more_trajectories_in_stages_than_the_pool_holds_the_guard_keeps_some(
    outcomes: Outcomes,
) -> None:
    facts = outcomes["residency_with_long_stages"]
    assert facts["residency"]["counts"]["held_back"] > 0
    assert 2 * facts["residency"]["recomputed"] <= facts["rp"]["recomputed"]


def test_a_storm_ends_with_fewer_preemptions_than_rp(outcomes: Outcomes) -> None:
    facts = outcomes["residency_in_a_storm"]
    assert facts["residency"]["preemptions"] < facts["rp"]["preemptions"]
    assert facts["residency"]["recomputed"] <= facts["rp"]["recomputed"]


def test_the_class_is_the_one_for_the_scheduling(outcomes: Outcomes) -> None:
    sync, overlapped = outcomes["residency_under_pressure"], outcomes["residency_asynchronous"]
    assert sync["residency"]["class"] == "RoutingResidencyScheduler"
    assert overlapped["residency"]["class"] == "RoutingResidencyAsyncScheduler"


def checked(outcome: dict[str, Any], steps: list[dict[str, Any]]) -> ResidencyCheck:
    check = ResidencyCheck(outcome["block size"], outcome["states"])
    for step in steps:
        check.check(step)
    return check


@pytest.mark.parametrize("name", ORDERS)
def test_each_pass_is_in_the_order_that_vllms_own_pool_gives(outcomes: Outcomes, name: str) -> None:
    facts = outcomes[name]
    steps = facts["steps"]
    check = checked(facts, steps)
    assert check.changed > 10
    assert check.first_tier > 100
    assert [step["emptied"] for step in steps if "emptied" in step] == [True]
    assert facts["preemptions"] > 0
    assert facts["pool"] == []


@pytest.mark.parametrize("fault", ["order", "residency", "held back", "jumped"])
def test_the_check_finds_a_planted_fault(outcomes: Outcomes, fault: str) -> None:
    facts = outcomes["residency_order_of_dense" if fault == "held back" else "residency_order"]
    steps = deepcopy(facts["steps"])
    if fault == "order":  # two of one pass change places
        step = next(each for each in steps if len(each["order"]) > 2)
        step["order"][:2] = reversed(step["order"][:2])
    elif fault == "residency":  # what vLLM held in one pass was gone
        step = next(each for each in steps if each["order"] != [name for name, _ in each["arrived"]])
        step["hits"] = dict.fromkeys(step["hits"], 0)
    elif fault == "held back":  # a cached one waits, too
        reordered = (each for each in steps if each["order"] != [name for name, _ in each["arrived"]])
        step = next(each for each in reordered if each["held back"])
        step["held back"] = step["order"]
    else:  # vLLM admitted one that was not its turn
        step = next(each for each in steps if len(each["order"]) > len(each["admitted"]) > 0)
        step["admitted"] = [step["order"][-1]]
    with pytest.raises(AssertionError):
        checked(facts, steps)


def test_one_state_per_trajectory_holds_more_trajectories(outcomes: Outcomes) -> None:
    """What vLLM alone can reuse is what two states a trajectory allow; the retention comes near to one."""
    for pool, row in outcomes["working_set"].items():
        assert row["off"] == row["vllm"], pool
        assert row["two states"] <= row["vllm"] < row["on"] <= row["one state"], pool


def test_what_cannot_work_is_refused_in_one_line(outcomes: Outcomes) -> None:
    facts = outcomes["residency_start"]
    name = "--scheduler-cls coresched_vllm.RoutingResidency "
    assert facts["log"] == ["--scheduler-cls coresched_vllm.RoutingResidency: vLLM 0.32.0 (tested)"]
    assert facts["cache off"] == (
        f"{name}orders requests by what the prefix cache holds, and there is none; "
        "use --enable-prefix-caching, or leave --scheduler-cls out"
    )
    assert facts["priority"].startswith(f"{name}orders requests by their trajectories, and --scheduling-poli")
    assert facts["retention"].startswith("one_state_per_trajectory in additional_config")
    assert facts["by"] == ["create_engine_config"] * 3
