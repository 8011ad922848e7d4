"""examples/harness.py as it is: embedded, at a service, and two of them that share the tasks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from served import CHECKOUT, served

HARNESS = CHECKOUT / "examples" / "harness.py"
TASKS = [f"task-{n}" for n in range(20)]


def start(*arguments: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, str(HARNESS), *arguments]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def done(harness: "subprocess.Popen[str]") -> tuple[list[str], str]:
    """The tasks that it ran, and its last line."""
    out, err = harness.communicate(timeout=60)
    assert harness.returncode == 0, err
    *tasks, last = out.splitlines()
    return [line.removeprefix("done: ") for line in tasks], last


def test_embedded() -> None:
    tasks, totals = done(start())
    assert sorted(tasks) == sorted(TASKS)
    assert "finished=20" in totals
    assert "turns=60, environment_stages=40" in totals


@pytest.mark.parametrize("processes", [1, 2])
def test_at_a_service(processes: int, tmp_path: Path) -> None:
    with served(listen=f"unix:{tmp_path}/s") as (address, _):
        harnesses = [start(address) for _ in range(processes)]
        results = [done(harness) for harness in harnesses]
    assert sorted(task for tasks, _ in results for task in tasks) == sorted(TASKS)
    assert any("finished=20" in totals for _, totals in results)


def test_without_a_service_it_says_so_in_a_line() -> None:
    harness = start("127.0.0.1:99999")
    out, err = harness.communicate(timeout=60)
    assert (harness.returncode, out) == (1, "")
    assert err == "harness: target must end with a port from 1 to 65535, got '127.0.0.1:99999'\n"
