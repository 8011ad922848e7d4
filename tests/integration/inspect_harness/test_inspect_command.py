"""`inspect eval` as users run it: gated by environment variables, alone or beside others, or not at all."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from integration.inspect_harness.environment import INSPECT
from integration.inspect_harness.scripted_jobs import most_at_once, processes, write_script
from served import served
from simulated_worker import running_worker

HERE = Path(__file__).parent

WIDE = ("--max-samples", "9", "--max-connections", "9", "--max-subprocesses", "9")


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    INSPECT.python()
    script = tmp_path_factory.mktemp("script") / "script.jsonl"
    write_script(script)
    with running_worker("--speed", "100", "--served-model-name", "m", "--script", str(script)) as (url, _):
        yield url


@contextmanager
def evaluating(worker: str, folder: Path, *options: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """`inspect eval` on the scripted jobs; it is killed in the end if it still runs."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CORESCHED_")}
    environment |= INSPECT.variables
    environment |= {"LOCAL_BASE_URL": f"{worker}/v1", "LOCAL_API_KEY": "none"}
    environment |= {"TOOL_LOG": str(folder / "tools"), "COLUMNS": "300", **variables}
    command = [INSPECT.python(), "-m", "inspect_ai", "eval", HERE / "eval_tasks.py@jobs"]
    command += ["--model", "openai-api/local/m", "--display", "plain", "--log-dir", folder, *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=folder
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_two_environment_variables_gate_an_eval(worker: str, tmp_path: Path) -> None:
    gate = {"CORESCHED_SAMPLE_CONCURRENCY": "9", "CORESCHED_ENVIRONMENT_CONCURRENCY": "2"}
    with evaluating(worker, tmp_path, *WIDE, "--limit", "5", **gate) as process:
        shown, _ = process.communicate(timeout=100)
    assert process.returncode == 0, shown
    assert "hooks enabled: 1" in shown
    assert "coresched: 5 sample attempts in " in shown
    assert "C_S 9, C_E 2; mean wait" in shown
    assert " is never reached" not in shown
    assert most_at_once(tmp_path / "tools") == 2
    assert processes(tmp_path / "tools") == 15


def test_a_variable_that_cannot_work_ends_the_eval_before_it_begins(worker: str, tmp_path: Path) -> None:
    with evaluating(worker, tmp_path, CORESCHED_SAMPLE_CONCURRENCY="many") as process:
        shown, _ = process.communicate(timeout=100)
    assert process.returncode != 0
    said = "coresched: CORESCHED_SAMPLE_CONCURRENCY must be a whole number of at least 1, got 'many'"
    assert said in " ".join(shown.split())
    assert "Traceback" not in shown
    assert not (tmp_path / "tools").exists()


def test_two_processes_share_the_slots_of_a_service(worker: str, tmp_path: Path) -> None:
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
        shown = [process.communicate(timeout=100)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], shown
    assert most_at_once(tmp_path / "tools") == 2
    assert processes(tmp_path / "tools") == 18
