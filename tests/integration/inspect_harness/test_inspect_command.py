"""`inspect eval` as users run it: gated by environment variables, alone or beside others, or not at all."""

import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
from harness_recordings import ToolRun, check_recording
from integration.engines.loaded import LoadedProcess, start_loaded
from integration.engines.programs import TO_ITS_END
from integration.inspect_harness.environment import INSPECT
from integration.inspect_harness.scripted_jobs import JOBS, most_at_once, processes, tool_runs, write_script
from served import served
from simulated_worker import running_worker

from coresched.cli.main import main

HERE = Path(__file__).parent

SCORED = re.compile(r"accuracy:? +\d")
WIDE = ("--max-samples", "9", "--max-connections", "9", "--max-subprocesses", "9")


@dataclass(frozen=True)
class Worker:
    """`log` has its requests."""

    url: str
    log: Path


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    INSPECT.python()
    script = tmp_path_factory.mktemp("script") / "script.jsonl"
    write_script(script)
    log = script.with_name("requests.jsonl")
    options = ("--speed", "100", "--served-model-name", "m", "--script", str(script))
    with running_worker(*options, "--request-log", str(log)) as (url, _):
        yield Worker(url, log)


@dataclass(frozen=True)
class Evaluation:
    """A process of `inspect eval`."""

    process: LoadedProcess
    _shown: IO[bytes]

    def end(self) -> tuple[int, str]:
        """Wait for it: its exit status, and what it showed."""
        status = self.process.wait(100)
        self._shown.seek(0)
        return status, self._shown.read().decode()


@contextmanager
def evaluating(worker: Worker, folder: Path, *options: str, **variables: str) -> Iterator[Evaluation]:
    """`inspect eval` on the scripted jobs."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CORESCHED_")}
    environment |= INSPECT.variables
    environment |= {"LOCAL_BASE_URL": f"{worker.url}/v1", "LOCAL_API_KEY": "none"}
    environment |= {"TOOL_LOG": str(folder / "tools"), "COLUMNS": "300", **variables}
    command = ["-m", "inspect_ai", "eval", f"{HERE / 'eval_tasks.py'}@jobs"]
    command += ["--model", "openai-api/local/m", "--display", "plain", "--log-dir", str(folder), *options]
    with (
        tempfile.TemporaryFile() as shown,
        start_loaded(
            INSPECT, TO_ITS_END, *command, output=shown, errors=shown, environment=environment
        ) as process,
    ):
        yield Evaluation(process, shown)


def test_two_environment_variables_gate_an_eval(worker: Worker, tmp_path: Path) -> None:
    gate = {"CORESCHED_SAMPLE_CONCURRENCY": "9", "CORESCHED_ENVIRONMENT_CONCURRENCY": "2"}
    gate["CORESCHED_RECORD"] = str(tmp_path / "recorded")
    with evaluating(worker, tmp_path, *WIDE, **gate) as evaluation:
        status, shown = evaluation.end()
    assert status == 0, shown
    assert "hooks enabled: 1" in shown
    assert f"coresched: {JOBS} sample attempts in " in shown
    assert "C_S 9, C_E 2; mean wait" in shown
    assert SCORED.search(shown)
    assert "CORESCHED_SAMPLE_CONCURRENCY" not in shown
    assert most_at_once(tmp_path / "tools") == 2
    assert processes(tmp_path / "tools") == 3 * JOBS
    requests = [json.loads(line) for line in worker.log.read_text().splitlines()]
    assert len(requests) == 3 * JOBS
    labels = {request["label"].split("/")[1]: request["label"] for request in requests}
    ran = [ToolRun(labels[job], start, end) for job, start, end in tool_runs(tmp_path / "tools")]
    check_recording(tmp_path / "recorded", requests, ran, 2)


def test_a_variable_that_cannot_work_ends_the_eval_before_it_begins(worker: Worker, tmp_path: Path) -> None:
    with evaluating(worker, tmp_path, CORESCHED_SAMPLE_CONCURRENCY="many") as evaluation:
        status, shown = evaluation.end()
    assert status != 0
    said = "coresched: CORESCHED_SAMPLE_CONCURRENCY must be a whole number of at least 1, got 'many'"
    assert said in " ".join(shown.split())
    assert "Traceback" not in shown
    assert not (tmp_path / "tools").exists()


def test_two_processes_share_the_slots_of_a_service(worker: Worker, tmp_path: Path) -> None:
    with served() as (address, _), ExitStack() as stack:
        gate = {
            "CORESCHED_SAMPLE_CONCURRENCY": "9",
            "CORESCHED_ENVIRONMENT_CONCURRENCY": "2",
            "CORESCHED_SERVICE": address,
            "CORESCHED_BATCH": "evals",
        }
        both = [
            stack.enter_context(evaluating(worker, tmp_path, *WIDE, "--limit", limit, **gate))
            for limit in ("1-3", "4-6")
        ]
        ends = [evaluation.end() for evaluation in both]
    assert [status for status, _ in ends] == [0, 0], ends
    assert most_at_once(tmp_path / "tools") == 2
    assert processes(tmp_path / "tools") == 3 * JOBS


def test_a_batch_that_is_closed_ends_the_eval_without_scores(worker: Worker, tmp_path: Path) -> None:
    with served() as (address, _), ExitStack() as stack:
        gate = {
            "CORESCHED_SAMPLE_CONCURRENCY": "2",
            "CORESCHED_ENVIRONMENT_CONCURRENCY": "1",
            "CORESCHED_SERVICE": address,
            "CORESCHED_BATCH": "evals",
        }
        options = (*WIDE, "--no-fail-on-error", "--epochs", "5")
        evaluation = stack.enter_context(evaluating(worker, tmp_path, *options, **gate))
        until = time.monotonic() + 60
        while not (tmp_path / "tools").exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        assert main(["batch", "close", "evals", "--service", address]) == 0
        _, shown = evaluation.end()
    assert "BatchClosedError" in shown
    assert "Task interrupted" in shown
    assert not SCORED.search(shown)
