"""The SGLang plugin in SGLang's real scheduler, in virtual time: each scenario of plugin_scenarios.py."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from integration.sglang_engine.environment import HERE, OFFLINE

from bench.sglang_policies.models import write_model
from bench.sglang_policies.processes import DEVICE

pytestmark = pytest.mark.sglang

VARIABLES = ("CORESCHED_LABEL_CAPACITY", "CORESCHED_SGLANG_CONFIG", "CORESCHED_PLAN")

Outcomes = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def outcomes(sglang_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        [
            sglang_python,
            HERE / "plugin_scenarios.py",
            model_of_few_experts(tmp_path_factory.mktemp("models")),
        ],
        capture_output=True,
        text=True,
        cwd="/",
        env={**environment, **OFFLINE, **DEVICE},
        timeout=1_800,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: Outcomes = dict(json.loads(line) for line in done.stdout.splitlines())
    for name, outcome in found.items():
        assert "failed" not in outcome, f"{name}: {outcome['failed']}"
    return found


def model_of_few_experts(folder: Path) -> Path:
    """Experts have no part in scheduling, and SGLang's table of them takes as long as the rest of a start."""
    model = write_model("qwen3-next-80b-a3b", folder)
    config = model / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_experts": 16}))
    return model


ARRIVED = ["running", "cold", "none", "t1-second", "t0-second"]


@pytest.mark.parametrize("name", ["warm_first", "without_overlap"])
def test_cached_trajectories_are_admitted_first(outcomes: Outcomes, name: str) -> None:
    facts = outcomes[name]
    assert facts["order"] == ["running", "t1-second", "t0-second", "cold", "none"]
    assert facts["cached"]["t0-second"] == facts["cached"]["t1-second"] > 1_800
    assert facts["queries"] == facts["hits"] == 2
    assert facts["labels"] == ["running", "t1", "t0", "cold"]


def test_one_line_at_start_says_the_capacity_and_where_it_is_from(outcomes: Outcomes) -> None:
    assert outcomes["warm_first"]["log"] == [
        "--schedule-policy routing-prefix: label capacity C_A = 32, from the engine's 32 state slots; "
        "SGLang 0.5.23 (tested)"
    ]


@pytest.mark.parametrize("name", ["residency", "prefill_side", "prefill_side_residency"])
def test_so_they_are_by_what_the_cache_holds_and_where_another_server_decodes(
    outcomes: Outcomes, name: str
) -> None:
    assert outcomes[name]["order"] == ["running", "t1-second", "t0-second", "cold", "none"]


def test_a_prefill_server_reuses_its_cache(outcomes: Outcomes) -> None:
    assert outcomes["prefill_side"]["prefilled"] < 12_000 + 2 * 2_000 + 2 * 200


def test_a_request_whose_lora_adapter_must_wait_is_passed_over(outcomes: Outcomes) -> None:
    facts = outcomes["lora"]
    assert facts["order"] == ["running", "t0-second", "cold", "none", "t1-second"]
    assert (facts["entered"], facts["queries"], facts["hits"]) == (7, 2, 2)
    assert facts["cached"]["t0-second"] == facts["cached"]["t1-second"] > 1_800


@pytest.mark.parametrize("name", ["tensor_parallel", "tensor_parallel_residency"])
def test_all_ranks_of_a_model_order_and_admit_alike(outcomes: Outcomes, name: str) -> None:
    one, other = outcomes[name]["ranks"]
    assert one == other
    counts = one[-1][2]
    assert counts["changes"] > 0
    assert counts["hits"] + counts["misses"] == len(outcomes[name]["outputs"]) == 48
    assert set(outcomes[name]["outputs"]) == {8}
    if name == "tensor_parallel_residency":
        assert counts["states_evicted"] > 0


@pytest.mark.parametrize("name", ["data_parallel", "attention_data_parallel"])
def test_each_engine_of_a_data_parallel_server_knows_its_own_labels(outcomes: Outcomes, name: str) -> None:
    for rank, passes in enumerate(outcomes[name]["ranks"]):
        assert {label for order, _, _ in passes for label in order} == {f"t{n}" for n in range(rank, 12, 2)}
        counts = passes[-1][2]
        assert (counts["hits"], counts["misses"]) == (18, 6)


def test_sglangs_own_policy_is_as_it_was(outcomes: Outcomes) -> None:
    assert outcomes["fcfs"] == {"order": ARRIVED, "ordering": None, "log": []}


def test_without_a_prefix_cache_it_is_fcfs_with_a_warning(outcomes: Outcomes) -> None:
    facts = outcomes["cache_off"]
    assert facts["order"] == ARRIVED
    assert facts["ordering"] is None
    assert len(facts["log"]) == 1
    assert "the prefix cache is off" in facts["log"][0]


def test_chunks_and_mixed_batches_admit_each_request_once(outcomes: Outcomes) -> None:
    facts = outcomes["mixed_chunks"]
    assert facts["passes"] > 12
    assert (facts["hits"], facts["misses"], facts["queries"]) == (6, 6, 6)
    assert set(facts["outputs"].values()) == {40}
    assert all(facts["cached"][f"other-{number}"] > 1_500 for number in range(6))


def test_a_retracted_request_keeps_its_record(outcomes: Outcomes) -> None:
    facts = outcomes["retracted"]
    assert facts["entered"] == 8
    assert facts["hits"] + facts["misses"] == 8 + sum(facts["retractions"].values()) > 8
    assert set(facts["outputs"].values()) == {250}


def test_a_request_aborted_in_the_queue_leaves_no_label(outcomes: Outcomes) -> None:
    facts = outcomes["aborts"]
    assert facts["aborted"] == ["gone", "running"]
    assert facts["labels"] == ["running", "stays"]
    assert facts["outputs"]["stays"] == 4


def test_priorities_come_first_and_preempt(outcomes: Outcomes) -> None:
    facts = outcomes["priorities"]
    assert facts["order"] == ["low-running", "high-warm", "high-cold", "low-warm", "low-cold", "default"]
    assert facts["retractions"] == {"low-running": 1}
    assert facts["outputs"]["low-running"] == 400


def test_after_a_flush_requests_are_served_without_a_hit(outcomes: Outcomes) -> None:
    facts = outcomes["flush"]
    assert facts["flushed"] is True
    assert facts["cached"]["after"] == 0
    assert facts["outputs"]["after"] == 4


def test_labels_of_any_kind_are_survived(outcomes: Outcomes) -> None:
    facts = outcomes["labels"]
    assert (facts["misses"], facts["unlabelled"], facts["refused labels"]) == (1, 5, 3)
    assert facts["labels"] == ["é" * 256]
    assert set(facts["outputs"].values()) == {4}


def test_a_hook_that_sglang_left_out_ends_the_start(outcomes: Outcomes) -> None:
    assert "did not hook Scheduler.get_new_batch_prefill" in outcomes["unhooked"]["refused"]


def test_a_bad_capacity_ends_the_start(outcomes: Outcomes) -> None:
    assert 'CORESCHED_LABEL_CAPACITY is "many"; it must be' in outcomes["bad_capacity"]["refused"]
