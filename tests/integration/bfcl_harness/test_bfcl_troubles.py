"""BFCL under the gate when something goes wrong, and in several processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from integration.bfcl_harness.environment import BFCL, HERE, package
from integration.bfcl_harness.harness_runs import Project, jsonl, most_at_once, scripted_worker
from integration.bfcl_harness.right_answers import CATEGORY, right_answers
from integration.engines.loaded import run_loaded
from served import CHECKOUT, served

CASES = [f"{CATEGORY}_{number}" for number in range(8)]
GATE = {"CORESCHED_SAMPLE_CONCURRENCY": "4", "CORESCHED_ENVIRONMENT_CONCURRENCY": "1"}


def wait_until(what: Callable[[], object], patience_s: float = 60) -> None:
    deadline = time.monotonic() + patience_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def assert_only_whole_rows(project: Project) -> None:
    """Of the cases that had ended before the run was cut short, and not of all."""
    rows = project.rows("rows")
    assert len(rows) < len(CASES)
    assert not any("traceback" in row for row in rows.values())


def test_cases_that_fail_give_their_slots_back(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen: each connection is refused
        project = Project(tmp_path, f"http://127.0.0.1:{taken.getsockname()[1]}")
        project.choose(CATEGORY, CASES)
        done = project.run(*project.generate("rows", "--num-threads", "8"), **GATE)
    assert done.returncode == 0, done.stderr
    rows = project.rows("rows")
    assert sorted(rows) == CASES
    assert {row["result"] for row in rows.values()} == {"Error during inference: Connection error."}
    assert "0 samples finished, 8 withdrawn, none finished; 0 turns" in done.stderr


def test_an_interrupted_run_stops_soon_and_is_gone_on_with(tmp_path: Path) -> None:
    with (
        scripted_worker(tmp_path, right_answers(package(), CASES), speed=4) as url,
        tempfile.TemporaryFile() as errors,
    ):
        project = Project(tmp_path / "project", url)
        project.choose(CATEGORY, CASES)
        words = project.generate("rows", "--num-threads", "8")
        with project.start_observed(tmp_path / "calls.jsonl", errors, *words, **GATE) as process:
            wait_until(lambda: jsonl(tmp_path / "calls.jsonl"))
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(60) != 0
        errors.seek(0)
        assert "coresched: C_S=4 C_E=1" in errors.read().decode()
        assert_only_whole_rows(project)
        done = project.run(*words, **{**GATE, "CORESCHED_SAMPLE_CONCURRENCY": "8"})
    assert done.returncode == 0, done.stderr
    assert sorted(project.rows("rows")) == CASES
    assert not any("traceback" in row for row in project.rows("rows").values())


def test_processes_share_the_capacities_of_a_service(tmp_path: Path) -> None:
    calls = tmp_path / "calls.jsonl"
    with ExitStack() as stack:
        url = stack.enter_context(scripted_worker(tmp_path, right_answers(package(), CASES)))
        address, _ = stack.enter_context(served())
        gate = {**GATE, "CORESCHED_SERVICE": address, "CORESCHED_BATCH": "bfcl"}
        started = []
        for half in (CASES[::2], CASES[1::2]):
            project = Project(tmp_path / half[0], url)
            project.choose(CATEGORY, half)
            errors = stack.enter_context(tempfile.TemporaryFile())
            words = project.generate("rows", "--num-threads", "4")
            process = stack.enter_context(project.start_observed(calls, errors, *words, **gate))
            started.append((project, half, process, errors))
        for project, half, process, errors in started:
            status = process.wait(120)
            errors.seek(0)
            assert status == 0, errors.read()
            assert sorted(project.rows("rows")) == sorted(half)
            assert not any("traceback" in row for row in project.rows("rows").values())
    assert most_at_once(jsonl(calls)) == 1
    labels = {request["label"] for request in jsonl(tmp_path / "requests.jsonl")}
    assert sorted(label.split("@")[0] for label in labels) == CASES
    assert len({label.split("@")[1] for label in labels}) == 2


def test_a_batch_that_is_closed_ends_the_run_and_leaves_no_false_rows(tmp_path: Path) -> None:
    with ExitStack() as stack:
        url = stack.enter_context(scripted_worker(tmp_path, right_answers(package(), CASES), speed=1))
        address, _ = stack.enter_context(served())
        errors = stack.enter_context(tempfile.TemporaryFile())
        project = Project(tmp_path / "project", url)
        project.choose(CATEGORY, CASES)
        words = project.generate("rows", "--num-threads", "8")
        gate = {**GATE, "CORESCHED_SERVICE": address, "CORESCHED_BATCH": "bfcl"}
        process = stack.enter_context(
            project.start_observed(tmp_path / "calls.jsonl", errors, *words, **gate)
        )
        wait_until(lambda: jsonl(tmp_path / "calls.jsonl"))
        subprocess.run(
            [sys.executable, "-m", "coresched", "batch", "close", "bfcl", "--service", address],
            check=True,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        )
        assert process.wait(60) == 1
        errors.seek(0)
        assert "the same command goes on" in errors.read().decode()
    assert_only_whole_rows(project)


def test_an_unknown_bfcl_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    project = Project(tmp_path, "http://127.0.0.1:9")
    project.choose(CATEGORY, CASES)
    words = (HERE / "without_a_place.py", *project.generate("rows"))
    done = run_loaded(BFCL, *words, environment=project.environment(**GATE), timeout_s=60)
    assert done.returncode == 2
    assert "_llm_response_generation.multi_threaded_inference does not exist" in done.stderr
    assert "bfcl-eval 2026.3.23" in done.stderr
    assert not project.rows("rows")


def test_a_wrong_variable_ends_the_run_before_it_begins(tmp_path: Path) -> None:
    project = Project(tmp_path, "http://127.0.0.1:9")
    project.choose(CATEGORY, CASES)
    done = project.run(*project.generate("rows"), CORESCHED_SAMPLE_CONCURRENCY="many")
    assert done.returncode == 2
    assert "CORESCHED_SAMPLE_CONCURRENCY must be" in done.stderr
    assert not project.rows("rows")
