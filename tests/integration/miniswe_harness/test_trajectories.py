"""Runs of agents in one process: what is a wait, what is a stage, and that every slot comes back."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from integration.engines.loaded import run_loaded
from integration.miniswe_harness.environment import MINI_SWE_AGENT

HERE = Path(__file__).parent
LIMITS = {"CORESCHED_SAMPLE_CONCURRENCY": "2", "CORESCHED_ENVIRONMENT_CONCURRENCY": "1"}


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Any:
    settings = {"MSWEA_GLOBAL_CONFIG_DIR": str(tmp_path_factory.mktemp("settings"))}
    environment = {**os.environ, **MINI_SWE_AGENT.variables, **LIMITS, **settings}
    done = run_loaded(MINI_SWE_AGENT, HERE / "scenarios.py", environment=environment, timeout_s=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_nothing_holds_a_slot_after_any_end(facts: Any) -> None:
    assert {
        name: (one["admitted"], one["environment_running"]) for name, one in facts.items()
    } == dict.fromkeys(facts, (0, 0))


def test_a_wait_counts_neither_for_the_command_nor_for_the_run(facts: Any) -> None:
    found = facts["waits_longer_than_its_timeout_and_limit"]
    assert found["coresched"]["environment_queue_s"] > 2  # the limit on the run's wall time
    healthy, stuck = found["observed"]
    assert "healthy" in healthy
    assert "timed out after 1 seconds" in stuck
    assert found["status"] == "Submitted"


def test_the_commands_of_one_reply_are_one_stage(facts: Any) -> None:
    found = facts["two_commands_in_one_stage"]
    assert found["info"]["coresched"]["environment_stages"] == 2  # they, and the submission
    assert facts["agent_of_another_kind"]["environment_stages"] == 2
    assert facts["agent_of_another_kind"]["label"] == "other-kind"


def test_a_second_attempt_has_a_label_of_its_own(facts: Any) -> None:
    found = facts["two_commands_in_one_stage"]
    assert (found["status"], found["again"]) == ("Submitted", "patch\n")
    assert found["info"]["coresched"]["label"] == "two#2"  # the environment ran twice


def test_the_trajectory_file_has_the_inner_classes(facts: Any) -> None:
    config = facts["two_commands_in_one_stage"]["info"]["config"]
    assert config["environment_type"] == "coresched_miniswe.GatedEnvironment"
    assert config["environment"] == {"cwd": "", "env": {}, "timeout": 30, "inner_class": "local"}
    assert config["model_type"] == "coresched_miniswe.GatedModel"
    assert config["model"]["inner_class"] == "deterministic"


def test_a_run_that_fails_is_withdrawn(facts: Any) -> None:
    assert facts["model_fails"]["raised"] == ["RuntimeError", "KeyboardInterrupt"]
    assert facts["model_fails"]["withdrawn"] == 2
    assert facts["limits_are_exceeded"]["status"] == "LimitsExceeded"


def test_what_starts_something_is_admitted_before_it_does(facts: Any) -> None:
    assert facts["environment_does_not_start"]["raised"] == ["RuntimeError"] * 3
    assert facts["environment_does_not_start"]["admitted_with_it"] == 1
    assert facts["environment_does_not_start"]["status"] == "Submitted"
    assert facts["environment_is_never_run"]["admitted_with_it"] == 1


def test_a_command_outside_of_a_run_is_a_sample_of_its_own(facts: Any) -> None:
    assert facts["commands_outside_of_a_run"]["outputs"] == ["before\n", "after\n"]


def test_an_agent_inside_an_agent_shares_its_trajectory(facts: Any) -> None:
    found = facts["agent_inside_an_agent"]
    assert (found["status"], found["samples"]) == ("Submitted", 1)
    assert found["stages"]["environment_stages"] == 3


def test_the_runner_s_containers_have_their_images_and_labels(facts: Any) -> None:
    found = facts["containers_of_the_runner"]
    images = {f"docker.io/swebench/sweb.eval.x86_64.a_1776_{number}:latest": 1 for number in (1, 2, 3)}
    assert found["started"] == images
    assert sorted(found["statuses"]["Submitted"]) == ["a__1", "a__2", "a__3"]
    assert found["statuses"]["CalledProcessError"] == ["a__broken"]
    for number in (1, 2, 3):
        told = found["infos"][f"a__{number}"]["coresched"]
        assert told["label"] == f"a__{number}"
        assert told["environment_stages"] == 4  # start, start-up command, the model's command, submission
