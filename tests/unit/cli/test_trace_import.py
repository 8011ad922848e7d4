"""`coresched trace import`: what it prints, its exit codes, and that the output is whole or not there."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from coresched.cli.main import main
from coresched.trajectory.reader import load_trajectories

RECORDINGS = Path(__file__).parents[1] / "trajectory" / "recordings"
RECORDED = [str(RECORDINGS / "task-0.traj.json"), str(RECORDINGS / "counting.eval")]
BFCL = {"id": "a", "result": "f()", "input_token_count": 90, "output_token_count": 12, "latency": 1.5}


def squeezed(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.fixture(autouse=True)
def _columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")


def test_the_summary_says_what_came_of_it_and_what_the_figures_are_worth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "runs.jsonl.zst"
    assert main(["trace", "import", *RECORDED, "--output", str(output)]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert squeezed(said.out) == [
        f"{output}: 3 trajectories, 9 turns from 2 files (1 mini-swe-agent, 2 inspect)",
        "tokens exact: the provider's usage 3 trajectories",
        "inference exact: the attempt that answered, without retries, back-off and the wait for a connection "
        "6 turns",
        "derived from time stamps; the harness's retries and their back-off cannot be told from it 2 turns",
        "absent 1 turn",
        "environment exact: working time of the tools, calls at the same time counted once 4 stages",
        "derived from time stamps, all calls of a stage together as they ran 2 stages",
    ]
    assert [trajectory.id for trajectory in load_trajectories(output)] == [
        "task-0",
        "count-0_epoch_1",
        "count-1_epoch_1",
    ]


@pytest.mark.parametrize("columns", [40, 80, 140])
def test_the_summary_fits_the_window(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.chdir(tmp_path)
    assert main(["trace", "import", RECORDED[1], "--output", "a.jsonl"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[1:])) <= columns


def test_a_skipped_record_is_listed_counted_and_makes_the_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "results.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps(BFCL) + "\n" + json.dumps({**BFCL, "id": 7}) + "\n{\n" * 30)
    assert main(["trace", "import", str(source), "--output", str(output)]) == 1
    said = capsys.readouterr()
    errors = said.err.splitlines()
    assert errors[0] == f"skipped: {source}, line 2: id: expected str, got int"
    assert errors[1].startswith(f"skipped: {source}, line 3: broken JSON at column ")
    assert errors[20:] == ["skipped: 11 more"]
    assert squeezed(said.out)[-1] == "skipped not imported, listed above 31 records"
    assert len(load_trajectories(output)) == 1


def test_where_nothing_can_be_imported_the_old_output_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "results.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"a": 1}\n')
    output.write_text("before")
    assert main(["trace", "import", str(source), "--output", str(output)]) == 2
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert line.startswith(
        f'coresched trace: nothing was imported: {source}: no known format: its first record has "a"; '
        "name it with --from (mini-swe-agent, inspect, "
    )
    assert said.out == ""
    assert output.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "results.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.json", "--output", "o.jsonl"], r"none\.json: no such file; check the path"),
        ([".", "--output", "o.jsonl"], r"\. is a directory; give the files in it, such as \./\*\.json"),
        ([RECORDED[1], "--output", RECORDED[1]], r"--output .* is an input of this command"),
        ([RECORDED[1], "--output", "no/where.jsonl"], r"--output 'no/where\.jsonl': there is no directory"),
        ([RECORDED[1], "--output", "."], r"--output '\.' is a directory; give a file name"),
        ([RECORDED[1], "--from", "csv", "--output", "o"], r"invalid choice: 'csv' \(choose from "),
        ([RECORDED[1]], r"the following arguments are required: --output"),
    ],
)
def test_bad_arguments_get_one_line(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["trace", "import", *arguments])
    except SystemExit as stopped:
        code = stopped.code  # type: ignore[assignment]
    assert code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(said, line)
    assert list(tmp_path.iterdir()) == []


def test_the_events_in_the_folder_of_a_replay_are_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"event": "completion", "sample": "a", "at_s": 1.0}\n')
    before = events.read_bytes()
    assert main(["trace", "import", str(tmp_path), "--output", str(events)]) == 2
    assert "is an input of this command; choose another name" in capsys.readouterr().err
    assert events.read_bytes() == before


def test_what_was_imported_can_be_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["trace", "import", *RECORDED, "--output", "runs.jsonl"]) == 0
    assert main(["simulate", "runs.jsonl", "--environment-concurrency", "1"]) == 0
    assert "3 trajectories of runs.jsonl" in capsys.readouterr().out


def test_contexts_that_shrank_and_clocks_that_went_back_are_in_the_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def entry(name: str, prompts: list[int], seconds: list[float]) -> str:
        counts = {"input_token_count": [prompts], "output_token_count": [[5, 5]], "latency": [seconds]}
        return json.dumps({"id": name, "result": [], **counts})

    source = tmp_path / "results.jsonl"
    lines = [entry("a", [100, 97], [1, 1]), entry("b", [100, 30], [1, 1]), entry("c", [9, 99], [-2, 1])]
    source.write_text("\n".join(lines))
    assert main(["trace", "import", str(source), "--output", str(tmp_path / "out.jsonl")]) == 0
    said = capsys.readouterr()
    assert said.err == (
        f"left out, as the clock cannot be right: {source}, line 3: latency[0][0] lasts -2.000 s\n"
    )
    assert squeezed(said.out)[-3:] == [
        "context the context was given up and begun anew: a trajectory for each part 1 sample",
        "a prompt got shorter, which a trace cannot say: imported too long by 3 tokens at the most "
        "1 trajectory",
        "clocks left out, listed above 1 duration",
    ]


def test_the_other_commands_start_without_the_importers() -> None:
    look = (
        "import sys; from coresched.cli.main import build_parser; build_parser(); "
        "print(*(name for name in sys.modules if name.startswith('coresched.trajectory.importers')))"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
