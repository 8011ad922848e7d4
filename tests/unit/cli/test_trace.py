import json
import os
import pty
import re
import select
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from coresched.cli.main import main
from coresched.trajectory.generator import generate
from coresched.trajectory.profile import profile
from coresched.trajectory.reader import read_trajectories
from coresched.trajectory.schema import Environment, Trajectory, Turn
from coresched.trajectory.writer import write_trajectories

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-c", "import sys; from coresched.cli.main import main; sys.exit(main())"]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "swe.jsonl.gz"
    write_trajectories(path, generate("swe", 40, 7))
    return path


def environment(**changes: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")
    }
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **changes}


def in_a_terminal(columns: int, *arguments: str) -> str:
    """What the command prints to a terminal of that width."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(COLUMNS=str(columns)),
    )
    os.close(theirs)
    output = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            output += os.read(ours, 65536)
        except OSError:  # Linux: the other side is closed
            break
        if not output:
            break
    os.close(ours)
    assert process.wait(timeout=60) == 0
    return output.decode()


def piped(*arguments: str, **changes: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, env=environment(**changes), timeout=60)


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_show_fits_the_terminal_and_is_coloured(trace: Path, columns: int) -> None:
    output = in_a_terminal(columns, "trace", "show", str(trace))
    assert "\x1b[" in output
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in output.splitlines()]
    assert max(map(len, lines)) <= columns
    assert any("Turns per trajectory" in line and "Environment durations" in line for line in lines) is (
        columns == 140
    )


def test_show_survives_a_tiny_terminal(trace: Path) -> None:
    assert "█" in in_a_terminal(12, "trace", "show", str(trace))


def test_show_in_a_pipe_is_plain_and_80_columns_wide(trace: Path) -> None:
    run = piped("trace", "show", str(trace))
    output = run.stdout.decode()
    assert (run.returncode, run.stderr) == (0, b"")
    assert "\x1b" not in output
    assert max(map(len, output.splitlines()[1:])) <= 80
    found = profile(read_trajectories(trace))
    row = next(line.split() for line in output.splitlines() if line.startswith("Final context, tokens"))
    numbers = found.final_context_tokens
    expected = (numbers.mean, numbers.p50, numbers.p90, numbers.p99, numbers.max)
    assert row[3:] == [f"{value:,.0f}" for value in expected]
    counts = [
        int(line.split()[-1])
        for line in output.split("Turns per trajectory")[2].split("\n\n")[0].splitlines()[1:]
    ]
    assert sum(counts) == 40


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_show_ends_quietly_when_nobody_reads_on(trace: Path, options: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run(
        [*COMMAND, "trace", "show", str(trace), *options],
        stdout=writer,
        stderr=subprocess.PIPE,
        env=environment(),
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert (run.returncode, run.stderr) == (0, b"")


def test_show_needs_no_more_than_ascii(trace: Path) -> None:
    renamed = trace.rename(trace.with_name("spür[bold].jsonl.gz"))
    run = piped("trace", "show", str(renamed), PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (run.returncode, run.stderr) == (0, b"")
    assert run.stdout.isascii()
    assert b"[bold]" in run.stdout.replace(b"\n", b"")  # a long path is wrapped
    assert b"####" in run.stdout


def test_show_says_what_was_not_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    turns = (Turn(5, env=Environment()), Turn(6))
    write_trajectories(tmp_path / "a.jsonl", [Trajectory(id="a", initial_prompt_tokens=10, turns=turns)])
    assert main(["trace", "show", str(tmp_path / "a.jsonl")]) == 0
    output = capsys.readouterr().out
    assert re.search(r"Environment stage, s +absent", output)
    assert re.search(r"Inference, s +absent", output)
    assert "1 (durations: 1 absent)" in output
    assert "log scale" not in output


def test_show_json_is_the_profile(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "show", str(trace), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    found = profile(read_trajectories(trace))
    assert printed["files"] == [str(trace)]
    assert printed["trajectories"] == 40
    assert printed["environment_s"] == asdict(found)["environment_s"]
    assert printed["turns_histogram"]["counts"] == list(found.turns_histogram.counts)
    assert printed["duration_quality"] == found.duration_quality


def test_show_takes_several_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, seed in (("a.jsonl", 1), ("b.jsonl.zst", 2)):
        write_trajectories(tmp_path / name, generate("tool-user", 5, seed))
    assert main(["trace", "show", str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl.zst"), "--json"]) == 0
    both = json.loads(capsys.readouterr().out)
    alone = [profile(read_trajectories(tmp_path / name)) for name in ("a.jsonl", "b.jsonl.zst")]
    assert both["trajectories"] == 10
    assert both["minimum_new_prefill_tokens"] == sum(found.minimum_new_prefill_tokens for found in alone)


@pytest.mark.parametrize("name", ["o.jsonl", "o.jsonl.gz", "o.jsonl.zst"])
def test_generate_writes_what_the_generator_gives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    output = tmp_path / name
    assert (
        main(["trace", "generate", "terminal", "--count", "9", "--seed", "5", "--output", str(output)]) == 0
    )
    assert list(read_trajectories(output)) == list(generate("terminal", 9, 5))
    printed = capsys.readouterr().out
    assert printed.startswith(f"{output}: 9 trajectories, ")
    assert printed.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "none.jsonl"], "coresched trace: none.jsonl: no such file; check the path\n"),
        (
            ["generate", "sew", "--output", "o.jsonl"],
            'profile is "sew"; it must be one of swe, terminal, tool-user',
        ),
        (
            ["generate", "swe", "--count", "0", "--output", "o.jsonl"],
            "argument --count: 0 is too small; it must be at least 1",
        ),
        (["generate", "swe", "--output", "none/o.jsonl"], "none/o.jsonl: cannot be written: No such file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["trace", *arguments])
    except SystemExit as left:
        code = int(left.code or 0)
    assert code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("subcommand", ["show", "generate"])
def test_help_has_an_example(subcommand: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["trace", subcommand, "--help"])
    assert left.value.code == 0
    assert f"example:\n  coresched trace {subcommand} " in capsys.readouterr().out
