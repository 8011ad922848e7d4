"""What `python -m bench chaos` prints, and its exit code."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from bench.chaos import command
from bench.chaos.checker import Findings
from bench.chaos.outcome import Measures, Outcome

MEASURES = Measures(
    wall_s=50.0,
    makespan_s=48.0,
    service_cpu_s=14.0,
    worker_cpu_s=7.0,
    calls=28_000,
    turns=7_000,
    failed_turns=3,
    environment_stages=5_000,
    reuse=0.5,
    most_samples=96,
    most_stages=24,
    most_residents=72,
    sessions=64,
    died=1,
    lost_sessions=0,
    readmissions=2,
    unacknowledged=0,
    service_restarts_s=[0.75, 1.5],
    worker_restarts=0,
)


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Outcome | Exception]:
    """What the runs come to, one after the other."""
    given: list[Outcome | Exception] = []

    async def run(*args: Any, **kwargs: Any) -> Outcome:
        outcome = given.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(command, "run", run)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return given


def arguments(**changes: Any) -> argparse.Namespace:
    given = {"quick": False, "only": None, "seed": 5, "keep": None, "json": False, "command_line": "chaos"}
    return argparse.Namespace(**{**given, **changes})


def test_a_sound_run_is_a_table_and_leaves_nothing_behind(
    outcomes: list[Outcome | Exception], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcomes += [Outcome(Findings(), MEASURES)] * 3
    assert command.carry_out(arguments()) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert "grace 10 s, seed 5" in printed
    (lost,) = [line.split() for line in printed.splitlines() if line.startswith("samples lost")]
    assert lost == ["samples", "lost", "0", "0", "0"]
    assert "0.8 to 1.5 s" in printed
    assert "0.50 ms" in printed
    assert list(tmp_path.iterdir()) == []


def test_findings_are_told_and_the_logs_kept(
    outcomes: list[Outcome | Exception], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcomes.append(Outcome(Findings(twice=["traj-1 was finished twice"]), MEASURES))
    assert command.carry_out(arguments(only="all", json=True)) == 1
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert report["settings"]["seed"] == 5
    assert report["runs"]["all"]["findings"]["twice"] == ["traj-1 was finished twice"]
    assert report["runs"]["all"]["measures"]["service_restarts_s"] == [0.75, 1.5]
    (kept,) = tmp_path.iterdir()
    assert str(kept) in printed.err
    assert (kept / "all").is_dir()


def test_a_run_that_does_not_come_to_its_end_is_a_failure(
    outcomes: list[Outcome | Exception], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcomes += [Outcome(Findings(), MEASURES), RuntimeError("harness-003 ended with exit code 1: why")]
    assert command.carry_out(arguments(keep=tmp_path / "kept")) == 1
    printed = capsys.readouterr().err
    assert "--seed 5, run service: harness-003 ended with exit code 1: why" in printed
    assert (tmp_path / "kept" / "service").is_dir()
