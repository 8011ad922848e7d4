"""The vLLM adapter in vLLM's real scheduler with made-up outputs: each scenario of scheduler_scenarios.py."""

import pytest
from integration.vllm_engine.scenario_runs import Outcomes, check_order, run_scenarios

pytestmark = pytest.mark.vllm

SCENARIOS = (
    *("hybrid_under_pressure", "dense_under_pressure", "without_pressure", "unlabelled", "asynchronous"),
    *("order", "preemption_storm", "aborts", "reset", "labels", "start", "refusals", "metrics"),
)


@pytest.fixture(scope="module")
def outcomes() -> Outcomes:
    return run_scenarios(SCENARIOS)


@pytest.mark.parametrize("model", ["hybrid_under_pressure", "dense_under_pressure"])
def test_under_pressure_at_most_half_is_computed_twice(outcomes: Outcomes, model: str) -> None:
    fcfs, rp, lpm = (outcomes[model][name] for name in ("fcfs", "rp", "lpm"))
    assert 2 * rp["recomputed"] <= fcfs["recomputed"]
    assert rp["recomputed"] <= 1.05 * lpm["recomputed"]
    assert rp["queries"] == 80  # one for each turn that is not a first
    assert lpm["queries"] > 10 * rp["queries"]
    assert rp["contexts"] == fcfs["contexts"] == lpm["contexts"]


def test_without_pressure_nothing_is_computed_more_often_than_under_fcfs(outcomes: Outcomes) -> None:
    facts = outcomes["without_pressure"]
    assert facts["rp"]["recomputed"] <= facts["fcfs"]["recomputed"]
    assert facts["rp"]["hit share"] >= facts["fcfs"]["hit share"] > 0.6


def test_without_labels_it_is_first_come_first_served(outcomes: Outcomes) -> None:
    rp, fcfs = outcomes["unlabelled"]["rp"], outcomes["unlabelled"]["fcfs"]
    assert rp["queries"] == 0
    for name in ("steps", "recomputed", "hit share", "contexts"):
        assert rp[name] == fcfs[name]


def test_one_name_gives_the_class_for_asynchronous_scheduling(outcomes: Outcomes) -> None:
    facts = outcomes["asynchronous"]
    assert facts["rp"]["class"] == "RoutingPrefixAsyncScheduler"
    assert outcomes["hybrid_under_pressure"]["rp"]["class"] == "RoutingPrefixScheduler"
    assert 2 * facts["rp"]["recomputed"] <= facts["fcfs"]["recomputed"]
    assert facts["rp"]["contexts"] == facts["fcfs"]["contexts"] == facts["wrong"]["contexts"]
    assert facts["wrong"]["steps"] > 1.4 * facts["rp"]["steps"]


def test_each_pass_is_in_the_reference_policys_order(outcomes: Outcomes) -> None:
    steps = check_order(outcomes["order"], label_capacity=8)
    assert sum(step["order"] != [name for name, _ in step["arrived"]] for step in steps) > 10
    assert sum(len(step["preempted"]) for step in steps) > 3
    assert sum(len(step["admitted"]) for step in steps) > 60


def test_a_preemption_storm_ends(outcomes: Outcomes) -> None:
    fcfs, rp = outcomes["preemption_storm"]["fcfs"], outcomes["preemption_storm"]["rp"]
    assert rp["preemptions"] > 20
    assert rp["contexts"] == fcfs["contexts"]
    assert rp["recomputed"] <= fcfs["recomputed"]


def test_aborted_requests_leave_the_queue_and_the_pool_whole(outcomes: Outcomes) -> None:
    facts = outcomes["aborts"]
    assert facts["running"] == facts["preempted"] == ["r0", "r1"]
    assert facts["finished"] == ["r1", "r2", "r4"]
    assert facts["waiting"] == []
    assert facts["labels"] == ["t0", "t1", "t2", "t4"]
    assert facts["free"] == facts["usable"]


def test_after_a_reset_requests_with_a_recorded_hit_are_served_without_it(outcomes: Outcomes) -> None:
    facts = outcomes["reset"]
    assert facts["first"] == ["a2"]
    assert facts["emptied"]
    assert facts["cached"] == {"b1": 0, "a3": 0}


def test_labels_of_any_kind_are_survived(outcomes: Outcomes) -> None:
    facts = outcomes["labels"]
    assert facts["finished"] == ["good", "long", "number", "list", "empty", "argument"]
    assert facts["labels"] == ["é" * 256, "t"]
    assert (facts["refused"], facts["unlabelled"]) == (3, 4)
    assert len(facts["log"]) == 1


def test_one_line_at_start_says_the_capacity_and_where_it_is_from(outcomes: Outcomes) -> None:
    facts = outcomes["start"]
    name = "--scheduler-cls coresched_vllm.RoutingPrefix: "
    capacity = f"{name}label capacity C_A = "
    assert facts["asked"]["log"] == [
        f'{capacity}10, from additional_config["coresched"]; vLLM 0.32.0 (tested)'
    ]
    assert facts["derived"]["log"] == [
        f"{capacity}37, from the engine's 150 blocks over 4 groups of layers, at most 65,536; "
        "vLLM 0.32.0 (tested)"
    ]
    assert facts["small"]["log"][1].startswith(f"{capacity}4 is not above max_num_seqs = 4, ")


def test_without_a_prefix_cache_it_is_fcfs_with_a_warning(outcomes: Outcomes) -> None:
    facts = outcomes["start"]["cache off"]
    assert facts["ordering"] is False
    assert len(facts["log"]) == 1
    assert "the prefix cache is off" in facts["log"][0]


def test_what_cannot_work_is_refused_before_an_engine_is_made(outcomes: Outcomes) -> None:
    facts = outcomes["refusals"]
    assert facts["plugin"]
    assert (
        "--scheduling-policy priority by something else; leave --scheduling-policy out" in facts["priority"]
    )
    assert facts["capacity"].startswith('label_capacity in additional_config["coresched"] is 0; it must be')
    assert facts["priority by"] == facts["capacity by"] == ["create_engine_config"]
    assert facts["vllm's own"] == "Scheduler"


def test_the_counts_are_among_vllms_metrics(outcomes: Outcomes) -> None:
    facts = outcomes["metrics"]
    queries, hits, misses, unlabelled = facts["counted"]
    assert facts["queries"] == [queries]
    assert facts["admitted"] == {"hit": hits, "miss": misses, "none": unlabelled}
    assert facts["labels"] == ["engine", "model_name"]
    assert (queries, hits, misses) == (80, 80, 20)
