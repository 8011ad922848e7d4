"""The benchmark runner with a model that fails, and interrupted."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from integration.miniswe_harness.answering import Attempts, answering
from integration.miniswe_harness.runs import running
from integration.miniswe_harness.tasks import write_configuration, write_tasks
from process_table import descendants, wait_until_gone
from served import served

from coresched.cli.main import main

ONE_SAMPLE = {"CORESCHED_SAMPLE_CONCURRENCY": "1", "CORESCHED_ENVIRONMENT_CONCURRENCY": "1"}


def test_each_attempt_at_a_failing_model_is_a_turn_and_the_slot_comes_back(tmp_path: Path) -> None:
    write_tasks(tmp_path, 2, command_s=0.1)
    attempts = Attempts(refused="task__0")
    with answering(attempts) as urls:
        write_configuration(tmp_path / "run", "http://workers")
        two_attempts = {"MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "2"}
        workers = {"CORESCHED_WORKERS": ",".join(urls)}
        with running(tmp_path, tmp_path / "run", 2, **ONE_SAMPLE, **two_attempts, **workers) as run:
            run.finish()
    # litellm tries nothing again by itself, and the second attempt goes to the other worker.
    ports = {label: [port for one, port, _ in attempts.seen if one == label] for label, _, _ in attempts.seen}
    assert sorted(ports) == ["task__0", "task__1"]
    assert all(len(seen) == len(set(seen)) == 2 for seen in ports.values())
    trajectories = run.trajectories()
    statuses = {name: one["info"]["exit_status"] for name, one in trajectories.items()}
    assert statuses == {"task__0": "BadRequestError", "task__1": "Submitted"}
    (reply,) = (one for one in trajectories["task__1"]["messages"] if one["role"] == "assistant")
    began = min(at for label, _, at in attempts.seen if label == "task__1")
    waited = reply["extra"]["timestamp"] - began - reply["extra"]["coresched"]["inference_s"]
    assert waited > 3.9  # mini-swe-agent's back-off of 4 s is no inference


def write_shell_tasks(folder: Path, count: int, seconds: float) -> None:
    """Tasks whose model is mini-swe-agent's own scripted one: a command that takes so long, and the end."""
    write_tasks(folder, count, command_s=0.1)
    outputs = [
        {"role": "assistant", "content": "", "extra": {"actions": [{"command": command}], "cost": 0.0}}
        for command in (
            f"bash tool.sh any {seconds}",
            "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo patch",
        )
    ]
    write_configuration(
        folder / "run", "http://none", inner_class="deterministic", model_kwargs={}, outputs=outputs
    )


def wait_until(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_batch_that_is_closed_ends_the_run_and_leaves_no_false_results(tmp_path: Path) -> None:
    write_shell_tasks(tmp_path, 5, seconds=2)
    with ExitStack() as stack:
        service, _ = stack.enter_context(served())
        shared = {"CORESCHED_SERVICE": service, "CORESCHED_BATCH": "closed"}
        limits = {"CORESCHED_SAMPLE_CONCURRENCY": "2", "CORESCHED_ENVIRONMENT_CONCURRENCY": "1"}
        run = stack.enter_context(running(tmp_path, tmp_path / "run", 3, **limits, **shared))
        wait_until((run.folder / "work" / "tool.log").exists)
        assert main(["batch", "close", "closed", "--service", service]) == 0
        printed = run.finish(expected=1)
        assert "the same command goes on with the instances that have no result yet" in printed
        predictions = run.outputs / "preds.json"
        ended = run.submissions() if predictions.exists() else {}  # before the batch was closed
        assert len(ended) < 5
        assert set(ended.values()) <= {"patch\n"}
        assert run.trajectories().keys() == ended.keys()
        no_cap = {"CORESCHED_SAMPLE_CONCURRENCY": "5"}
        again = stack.enter_context(running(tmp_path, tmp_path / "run", 5, **no_cap))
        again.finish()
        assert set(again.submissions().values()) == {"patch\n"}
        assert len(again.submissions()) == 5


def test_a_wrong_variable_ends_the_run_before_any_task_begins(tmp_path: Path) -> None:
    write_shell_tasks(tmp_path, 3, seconds=0.1)
    with running(tmp_path, tmp_path / "run", 2, CORESCHED_SAMPLE_CONCURRENCY="many") as run:
        printed = run.finish(expected=1)
    assert "coresched: error: CORESCHED_SAMPLE_CONCURRENCY must be a whole number" in printed
    assert "Traceback" not in printed
    assert not (run.outputs / "preds.json").exists()
    assert run.trajectories() == {}


def test_an_interrupted_runner_leaves_nothing_behind(tmp_path: Path) -> None:
    write_shell_tasks(tmp_path, 5, seconds=1)
    with ExitStack() as stack:
        service, _ = stack.enter_context(served())
        shared = {"CORESCHED_SERVICE": service, "CORESCHED_BATCH": "interrupted"}
        limits = {"CORESCHED_SAMPLE_CONCURRENCY": "2", "CORESCHED_ENVIRONMENT_CONCURRENCY": "1"}
        run = stack.enter_context(running(tmp_path, tmp_path / "run", 2, **limits, **shared))
        wait_until((run.folder / "work" / "tool.log").exists)
        processes = descendants(run.process.pid)
        os.kill(run.process.pid, signal.SIGINT)
        assert "Cancelling all pending jobs" in run.finish()
        wait_until_gone(processes)
        # What ran goes on to its end, as the runner has it; what waits in its pool does not begin.
        assert set(run.submissions().values()) == {"patch\n"}
        assert len(run.submissions()) == 2
        assert main(["batch", "close", "interrupted", "--service", service]) == 2  # it is there no more
