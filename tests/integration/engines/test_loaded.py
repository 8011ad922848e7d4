"""Programs in forks of a process that has imported something; `json` is the engine here."""

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from integration.engines.environment import CHECKOUT, EngineEnvironment
from integration.engines.loaded import run_loaded
from process_table import gone

PROGRAM = """
import os, subprocess, sys
what, file = sys.argv[1:]
print(what, os.environ["COLOUR"], "json" in sys.modules, os.getcwd())
print("no", file=sys.stderr)
child = subprocess.Popen(["sleep", "600"])
open(file, "w").write(f"{os.getppid()} {child.pid}")
if what == "wait":
    child.wait()
sys.exit(3)
"""
USER = """
import json, sys
from pathlib import Path
from integration.engines.environment import EngineEnvironment
from integration.engines.loaded import run_loaded
engine = EngineEnvironment("json", json.__version__, Path(), (), {"COLOUR": "red"}, "import json")
for _ in sys.stdin:
    print(run_loaded(engine, *sys.argv[1:]).returncode, flush=True)
"""
"""Another process of a test run, which runs a program for each line that it reads."""

Users = Callable[[str, str], subprocess.Popen[str]]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> EngineEnvironment:
    monkeypatch.setenv("CORESCHED_JSON_PYTHON", sys.executable)
    return EngineEnvironment("json", json.__version__, Path(), (), {"COLOUR": "red"}, "import json")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path / "program.py"


@pytest.fixture
def users(program: Path) -> Iterator[Users]:
    """Starts processes of one test run, for the program with these arguments."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "tests")}
    environment |= {"PYTEST_XDIST_TESTRUNUID": uuid.uuid4().hex, "CORESCHED_JSON_PYTHON": sys.executable}
    with ExitStack() as started:

        def start(what: str, name: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", USER, program, what, program.with_name(name)]
            process = started.enter_context(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
                )
            )
            started.callback(process.kill)
            return process

        yield start


def eventually(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_program_runs_as_in_a_process_of_its_own_and_leaves_none_behind(
    engine: EngineEnvironment, program: Path
) -> None:
    done = run_loaded(engine, program, "leave", program.with_name("left"))
    assert (done.returncode, done.stdout, done.stderr) == (3, "leave red True /\n", "no\n")
    _, left = program.with_name("left").read_text().split()
    eventually(lambda: gone(int(left)))
    assert run_loaded(engine, "-m", "json.tool", "--help").stdout.startswith("usage: ")
    failed = run_loaded(engine, program)
    assert failed.returncode == 1
    assert "ValueError: not enough values" in failed.stderr


def test_a_program_ends_with_the_process_that_wants_it(users: Users, program: Path) -> None:
    user = users("wait", "left")
    left = program.with_name("left")
    assert user.stdin is not None
    print(file=user.stdin, flush=True)
    eventually(lambda: left.exists() and left.read_text() != "")
    user.kill()
    server, child = map(int, left.read_text().split())
    eventually(lambda: gone(child) and gone(server))


def test_the_processes_of_a_test_run_share_a_server_which_ends_with_the_last(
    users: Users, program: Path
) -> None:
    names = ("one", "other")
    first, last = (users("leave", name) for name in names)
    for user in (first, last):
        assert user.stdin is not None
        assert user.stdout is not None
        print(file=user.stdin, flush=True)
        assert user.stdout.readline() == "3\n"
    server, *others = (int(program.with_name(name).read_text().split()[0]) for name in names)
    assert others == [server]
    first.communicate()
    assert last.communicate("\n")[0] == "3\n"
    eventually(lambda: gone(server))
