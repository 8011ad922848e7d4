"""`coresched replay` as a person meets it: output, folder, exit codes, one-line errors."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from replay_engine import Engine, engine_beside
from simulated import trajectory

from coresched.cli.main import build_parser, main
from coresched.trajectory.writer import write_trajectories


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "traces.jsonl"
    write_trajectories(path, [trajectory(f"t{n}", [(4, 0.01, 3), (3, None, 0)]) for n in range(5)])
    return path


@pytest.fixture
def engine() -> Iterator[Engine]:
    with engine_beside() as running:
        yield running


def command(trace: Path, engine: Engine, *options: str) -> list[str]:
    return ["replay", str(trace), "--endpoint", f"w={engine.url}", "--sample-concurrency", "3", *options]


def test_a_replay_leaves_a_table_and_a_folder(
    trace: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(trace, engine, "--output", "one", "--environment-concurrency", "2")) == 0
    out = capsys.readouterr().out
    assert "coresched replay: 5 of 5 samples, 10 of 10 turns" in out
    assert "ms of CPU a turn" in out
    assert "note:" in out  # the tiny engine finds one cached token in first prompts too
    assert max(len(line) for line in out.splitlines()) <= 80
    configuration = json.loads(Path("one/run.json").read_text())
    assert configuration["settings"]["environment_concurrency"] == 2
    assert configuration["endpoints"][0] | {"name": "w", "url": engine.url} == configuration["endpoints"][0]
    assert configuration["protocol"] == "POST /generate"
    summary = json.loads(Path("one/summary.json").read_text())
    assert (summary["status"], summary["metrics"]["completed_samples"]) == ("completed", 5)
    assert summary["client"]["cpu_ms_per_turn"] > 0
    events = [json.loads(line) for line in Path("one/events.jsonl").read_text().splitlines()]
    assert sorted({event["event"] for event in events}) == [
        "admission",
        "completion",
        "environment",
        "inference",
    ]


def test_a_replay_is_shown_beside_an_earlier_one_of_the_same_prompts(
    trace: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(trace, engine, "--output", "one", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["turns"] == 10
    assert main(command(trace, engine, "--output", "two", "--against", "one")) == 0
    lines = capsys.readouterr().out.splitlines()
    (first,), (second,) = (
        [line.split() for line in lines if line.startswith(name + " ")] for name in ("one", "two")
    )
    assert len(second) == len(first) + 2  # the gain, and its percent sign
    assert main(command(trace, engine, "--seed", "1", "--against", "one")) == 2
    assert "replayed other prompts" in capsys.readouterr().err


def test_a_failed_replay_has_exit_code_1_and_says_why(
    trace: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.faults.append(400)
    assert main(command(trace, engine, "--output", "one")) == 1
    out, err = capsys.readouterr()
    assert "endpoint http://127.0.0.1:" in err
    assert "answered 400: no, 400; what was measured by then is kept" in err
    assert "did not reach its end" in out
    assert json.loads(Path("one/summary.json").read_text())["status"] == "failed"


def test_the_commands_of_its_page_are_commands() -> None:
    page = (Path(__file__).parents[3] / "docs" / "replay.md").read_text().replace("\\\n", "")
    commands = re.findall(r"^\$ coresched (.*?)(?: &)?$", page, flags=re.MULTILINE)
    parsed = [build_parser().parse_args(shlex.split(line)).command for line in commands]
    assert parsed == ["replay", "replay", "worker", "worker", "trace", "replay", "replay", "report", "report"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--endpoint", "localhost"], "--endpoint 'localhost' must be [NAME=]URL"),
        (["--endpoint", "a=ftp://x"], "must be [NAME=]URL"),
        (["--endpoint", "http://x:port"], "must be [NAME=]URL"),
        (["--endpoint", "=http://x"], "the name must"),
        (["--endpoint", "w=http://other"], "has the name of another one"),
        (["--endpoint", "v=http://127.0.0.1:1"], "has the url of another one"),
        (["--sample-concurrency", "0"], "must be at least 1"),
        (["--speed", "0"], "must be greater than 0"),
        (["--token-ids", "5:5"], "must be LOW:HIGH with 0 <= LOW < HIGH"),
        (["--token-ids", "x"], "must be LOW:HIGH"),
        (["--batch", "b"], "--batch is for a batch at a service"),
        (["--ca", "b"], "--ca is for a batch at a service"),
        (["--service", "h:1", "--load-bound", "2"], "--load-bound is a matter of the service"),
        (["--service", "h:1", "--router", "consistent-hash"], "consistent-hash is a matter of the service"),
        (["--router", "round-robin", "--load-bound", "2"], "--load-bound is for --router lbch and gateway"),
        (["--router", "consistent-hash", "--load-bound", "2"], "consistent-hash has no bound"),
        (["--against", "nowhere"], "--against 'nowhere' is no folder of a finished replay"),
        ([], "--endpoint http://127.0.0.1:1: cannot be connected to (Connection refused)"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    trace: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint = ["--endpoint", "w=http://127.0.0.1:1"]
    given = ["replay", str(trace), *endpoint, "--sample-concurrency", "3", *options]
    try:
        code: Any = main(given)
    except SystemExit as exit:
        code = exit.code
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert [path.name for path in trace.parent.iterdir()] == ["traces.jsonl"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"prompt": 0}, "the prompt of turns[0] has 0 tokens"),
        ({"name": "é"}, "trajectory 'é': id must be printable ASCII to travel in a header"),
    ],
)
def test_a_trace_that_cannot_be_sent_is_refused(
    trace: Path, fields: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trajectories(trace, [trajectory(turns=[(1, None, 0)], **({"name": "a"} | fields))])
    assert main(["replay", str(trace), "--endpoint", "http://127.0.0.1:1", "--sample-concurrency", "3"]) == 2
    assert said in capsys.readouterr().err
