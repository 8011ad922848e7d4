"""Evals of the real inspect-ai under the gate, against the scripted worker, with tools that are processes."""

import json
import os
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from integration.engines.loaded import run_loaded
from integration.inspect_harness.environment import INSPECT
from integration.inspect_harness.scripted_jobs import JOBS, most_at_once, processes, write_script
from simulated_worker import running_worker

HERE = Path(__file__).parent

WIDE = {"max_samples": 9, "max_connections": 9, "max_subprocesses": 16}
UNIFIED = {"sample_concurrency": 2, "environment_concurrency": 2}
DECOUPLED = {"sample_concurrency": 9, "environment_concurrency": 2}
ONE_SLOT = {"sample_concurrency": 9, "environment_concurrency": 1}


def run(name: str, task: str, gate: dict[str, Any] | None, backend: str = "asyncio", **more: Any) -> Any:
    options = WIDE | {key: value for key, value in more.items() if key != "retry"}
    retry = {"retry": more["retry"]} if "retry" in more else {}
    return {"name": name, "task": task, "gate": gate, "backend": backend, "options": options, **retry}


RUNS = [
    run("ungated", "jobs", None),
    run("unified", "jobs", UNIFIED),
    run("decoupled", "jobs", DECOUPLED),
    run("decoupled-trio", "jobs", DECOUPLED, "trio"),
    run("cached", "jobs", DECOUPLED, limit=1, cache=True),
    run("cached-again", "jobs", DECOUPLED, limit=1, cache=True),
    run("troubles-ungated", "troubles", None, retry_on_error=1),
    run("troubles", "troubles", DECOUPLED, retry_on_error=1),
    run("troubles-trio", "troubles", DECOUPLED, "trio", retry_on_error=1),
    run("retried", "troubles", DECOUPLED, retry="troubles"),
    run("bosses", "bosses", ONE_SLOT),
    run("timed", "timed", ONE_SLOT),
    run("narrow", "jobs", DECOUPLED, limit=1, max_samples=5, max_connections=4, max_subprocesses=1),
    run("unset", "jobs", {"sample_concurrency": 50}, limit=1, max_samples=None, max_connections=None),
    run("shells", "shells", ONE_SLOT),
    run("residents", "shells", {**DECOUPLED, "resident_concurrency": 1}),
]
GATED = [run["name"] for run in RUNS if run["gate"]]
UNGATED = [run["name"] for run in RUNS if not run["gate"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("evals")


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    """What became of each run, by name. One process runs them all: inspect takes 5 s to load."""
    write_script(folder / "script.jsonl")
    options = ("--speed", "20", "--served-model-name", "m", "--script", str(folder / "script.jsonl"))
    with running_worker(*options, "--request-log", str(folder / "requests.jsonl")) as (url, _):
        environment = {
            **os.environ,
            **INSPECT.variables,
            "INSPECT_CACHE_DIR": str(folder / "cache"),
            "LOCAL_BASE_URL": f"{url}/v1",
            "LOCAL_API_KEY": "none",
            "LOGS": str(folder),
        }
        command = (HERE / "eval_driver.py", json.dumps(RUNS))
        done = run_loaded(INSPECT, *command, environment=environment, timeout_s=300)
    assert done.returncode == 0, done.stderr[-4000:]
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return results


@pytest.fixture(scope="module")
def requests(results: dict[str, Any], folder: Path) -> "Counter[str | None]":
    """How many requests the worker had from each label."""
    lines = (folder / "requests.jsonl").read_text(encoding="utf-8").splitlines()
    return Counter(json.loads(line)["label"] for line in lines)


def outcomes(result: dict[str, Any]) -> dict[str, Any]:
    return {id: (s["scores"], s["error"], s["limit"]) for id, s in result["samples"].items()}


def waits(result: dict[str, Any], sample: str) -> Any:
    return result["samples"][sample]["waits"]


def test_without_variables_inspect_is_as_if_nothing_were_installed(results: dict[str, Any]) -> None:
    assert results["untouched"]


def test_an_inspect_that_lacks_a_place_is_refused_by_name(results: dict[str, Any]) -> None:
    assert results["refusal"].startswith(
        "inspect-ai 0.3.285 cannot be gated: inspect_ai.util._limit._TimeLimit."
    )
    assert "_refresh_deadline does not exist; install 0.3.285, which is tested" in results["refusal"]


def test_limits_of_inspect_below_the_gates_are_warned_of(results: dict[str, Any]) -> None:
    first, second, third, fourth = results["warnings"]
    assert "--max-samples 5 is below CORESCHED_SAMPLE_CONCURRENCY 9" in first
    assert "--max-connections is 4, below CORESCHED_SAMPLE_CONCURRENCY=9" in second
    assert "--max-subprocesses is 1, below CORESCHED_ENVIRONMENT_CONCURRENCY=2" in third
    assert "without --max-samples inspect admits 20 samples" in fourth


@pytest.mark.parametrize("name", ["unified", "decoupled", "decoupled-trio"])
def test_a_gated_eval_has_the_scores_of_an_ungated_one(
    results: dict[str, Any], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = results[name]
    assert result["status"] == results["ungated"]["status"] == "success"
    assert outcomes(result) == outcomes(results["ungated"])
    assert set(result["states"].values()) == {"finished"}
    assert result["totals"]["finished"] == JOBS
    assert result["totals"]["turns"] == 3 * JOBS
    assert result["totals"]["environment_stages"] == 2 * JOBS  # calls of one message are one stage
    with capsys.disabled():
        print(f"\n{name}: makespan {result['totals']['makespan_s']:.2f} s", end=" ")


@pytest.mark.parametrize("name", ["unified", "decoupled", "decoupled-trio", "troubles", "troubles-trio"])
def test_no_more_samples_than_slots_have_tools_running(
    results: dict[str, Any], folder: Path, name: str
) -> None:
    assert most_at_once(folder / f"{name}.tools") == 2
    assert most_at_once(folder / "ungated.tools") > 2
    if name.startswith("decoupled"):
        assert processes(folder / f"{name}.tools") == processes(folder / "ungated.tools") == 3 * JOBS


def test_every_request_has_the_label_of_its_sample(
    results: dict[str, Any], requests: "Counter[str | None]"
) -> None:
    for name in GATED:
        for id, sample in results[name]["samples"].items():
            if name.startswith("cached") or (name == "retried" and id != "fail"):
                continue
            assert requests[sample["waits"]["label"]] == len(sample["headers"]), (name, id)
    in_logs = sum(len(s["headers"]) for name in UNGATED for s in results[name]["samples"].values())
    assert requests[None] == in_logs + 2  # the attempts at "fail" and "flaky" that were tried again


def test_the_log_of_a_sample_says_how_long_it_waited(results: dict[str, Any]) -> None:
    sample = results["unified"]["samples"][f"job-{JOBS - 1}"]
    assert sample["waits"]["label"].startswith(f"jobs/job-{JOBS - 1}/epoch-1/attempt-1/")
    assert sample["waits"]["admission_wait_s"] > 0
    assert sample["events"][0]["admission_wait_s"] == sample["waits"]["admission_wait_s"]
    queued = [
        waits(results["decoupled"], id)["environment_queue_s"] for id in results["decoupled"]["samples"]
    ]
    assert sum(queued) == pytest.approx(results["decoupled"]["totals"]["environment_queue_s"], abs=0.1)
    assert waits(results["decoupled"], "job-0")["environment_stages"] == 2
    assert not any(
        any(s["headers"]) for s in results["decoupled"]["samples"].values()
    )  # logged as configured


def test_inspects_cache_finds_the_replies_of_another_label(
    results: dict[str, Any], requests: "Counter[str | None]"
) -> None:
    first, second = (waits(results[name], "job-0")["label"] for name in ("cached", "cached-again"))
    assert (requests[first], requests[second]) == (3, 0)
    assert outcomes(results["cached"]) == outcomes(results["cached-again"])
    assert results["cached-again"]["totals"]["turns"] == 0


@pytest.mark.parametrize("name", ["troubles", "troubles-trio"])
def test_whatever_ends_a_sample_ends_it_at_the_gate(results: dict[str, Any], name: str) -> None:
    result = results[name]
    assert outcomes(result) == outcomes(results["troubles-ungated"])
    assert result["samples"]["endless"]["limit"] == "message"
    assert "out of order" in result["samples"]["fail"]["error"]
    states = {tuple(label.split("/")[1:4:2]): state for label, state in result["states"].items()}
    assert states == {
        ("error", "attempt-1"): "finished",
        ("endless", "attempt-1"): "finished",
        ("fail", "attempt-1"): "withdrawn",
        ("fail", "attempt-2"): "withdrawn",
        ("flaky", "attempt-1"): "withdrawn",
        ("flaky", "attempt-2"): "finished",
    }


def test_a_retried_eval_runs_its_failed_sample_under_a_new_label(results: dict[str, Any]) -> None:
    result = results["retried"]
    (label,) = result["states"]
    assert label.startswith("troubles/fail/")
    assert label not in results["troubles"]["states"]
    assert result["samples"]["fail"]["scores"] == {"includes": "C"}


def test_sub_agents_and_tools_that_ask_a_model_share_one_slot_and_end(
    results: dict[str, Any], folder: Path
) -> None:
    result = results["bosses"]
    assert result["status"] == "success"
    assert {s["scores"]["includes"] for s in result["samples"].values()} == {"C"}
    assert most_at_once(folder / "bosses.tools") == 1
    assert processes(folder / "bosses.tools") == 9


def test_neither_time_limit_nor_working_limit_is_charged_for_the_queue(results: dict[str, Any]) -> None:
    """Three tools of 1 s after each other, and one that never ends, under limits of 3 s."""
    samples = results["timed"]["samples"]
    assert samples.pop("late")["limit"] in ("time", "working")
    assert all(s["limit"] is None and s["scores"]["includes"] == "C" for s in samples.values())
    assert max(s["waits"]["environment_queue_s"] for s in samples.values()) > 2
    assert all(
        s["working_s"] < s["total_s"] - s["waits"]["environment_queue_s"] + 0.5 for s in samples.values()
    )


def test_setup_scripts_and_commands_of_scorers_are_stages_and_judges_have_the_label(
    results: dict[str, Any], folder: Path
) -> None:
    result = results["shells"]
    for sample in result["samples"].values():
        assert sample["scores"] == {"includes": "C", "command_score": 1.0, "model_graded_qa": "C"}
        assert sample["waits"]["environment_stages"] == 3
        assert len(sample["headers"]) == 3
    assert most_at_once(folder / "shells.tools") == 1
    assert processes(folder / "shells.tools") == 6


def test_no_more_sandboxes_live_than_resident_slots(results: dict[str, Any], folder: Path) -> None:
    result = results["residents"]
    assert all(sample["waits"]["resident_wait_s"] >= 0 for sample in result["samples"].values())
    jobs = [line.split()[1] for line in (folder / "residents.tools").read_text(encoding="utf-8").splitlines()]
    assert [job for job, _ in groupby(jobs)] == list(dict.fromkeys(jobs))  # one sample after the other
    assert len(jobs) == 12
