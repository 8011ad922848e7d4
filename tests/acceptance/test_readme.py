"""The README as a newcomer reads it: its example runs, its commands exist."""

import os
import re
import subprocess
import sys
from pathlib import Path

from served import served

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_harness_example_runs_as_it_stands(tmp_path: Path) -> None:
    (example,) = blocks("python")
    finished = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert finished.returncode == 0, finished.stderr


def test_one_line_changes_for_many_processes() -> None:
    (example,) = blocks("python")
    here = re.search(r"coresched\.Batch\(\s*(.*?), workers=.*?\n    \)", example, flags=re.DOTALL)
    assert here is not None
    (said,) = re.findall(r"`(coresched\.connect\(.*?), \.\.\.\)`", README)
    with served() as (address, _):
        there = f"{said}, {here[1]})".replace("127.0.0.1:50071", address)
        exec(compile(example.replace(here[0], there), "README.md", "exec"), {"__name__": "readme"})


def test_the_command_that_ci_runs_is_the_readmes() -> None:
    commands = [line.strip() for block in blocks("sh") for line in block.splitlines()]
    assert "bash tests/run.sh" in commands
    assert (ROOT / ".ci" / "run").read_text().strip().splitlines()[-1] == "bash tests/run.sh"


def test_the_first_command_ends_in_the_demo_and_the_demo_runs(tmp_path: Path) -> None:
    first = blocks("sh")[0].strip()
    assert first.endswith(".venv/bin/coresched demo")
    command = Path(sys.executable).with_name("coresched")
    environment = {**os.environ, "COLUMNS": "80"}
    finished = subprocess.run(
        [command, "demo"], cwd=tmp_path, capture_output=True, text=True, timeout=60, env=environment
    )
    assert finished.returncode == 0, finished.stderr
    assert "coordinated" in finished.stdout
    assert (tmp_path / "coresched-demo.html").exists()
