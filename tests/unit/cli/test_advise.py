"""`coresched advise` as a person meets it."""

import json
from pathlib import Path

import pytest

from coresched.cli.main import main


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("advise") / "t.jsonl"
    assert main(["trace", "generate", "terminal", "--count", "40", "--seed", "2", "--output", str(path)]) == 0
    return str(path)


def test_the_advice_names_the_change_and_how_to_make_it(
    trace: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["advise", trace, "--environment-concurrency", "3", "--orders", "6"]) == 0
    out = capsys.readouterr().out
    assert "sample-concurrency 3" in out
    assert "coresched.Batch(sample_concurrency=" in out
    assert "orders of the batch that the search did not see" in out.replace("\n", " ").replace("  ", " ")
    assert all(len(line) <= 80 for line in out.splitlines() if not line.startswith("  ")), out


def test_without_anything_to_gain_it_says_so(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", trace, "--workers", "1", "--orders", "6"]) == 0
    out = capsys.readouterr().out
    assert "Leave it as it is" in out
    assert "-0.0" not in out
    assert "coresched.Batch" not in out


def test_json_has_all_of_it(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", trace, "--environment-concurrency", "3", "--orders", "6", "--json"]) == 0
    advice = json.loads(capsys.readouterr().out)
    assert advice["leave_as_it_is"] is False
    assert advice["advised"]["saved"]["low"] > 0.1
    assert advice["advised"]["settings"]["sample_concurrency"] > 3
    assert "in the harness" in [step["what"] for step in advice["steps"]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--orders", "5"], "--orders 5 is too few"),
        (
            ["--as-it-is", "speed=3"],
            "--as-it-is 'speed=3' must be NAME=VALUE with a NAME of sample-concurrency,",
        ),
        (
            ["--as-it-is", "band-s=3", "--as-it-is", "band_s=4"],
            "--as-it-is 'band_s=4' and 'band-s=3' set the same; give one of them",
        ),
        (["--worker-model", "none-such"], "none-such"),
    ],
)
def test_bad_input_is_one_line(
    trace: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", trace, *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_a_trace_without_durations_needs_one_assumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.jsonl"
    assert main(["trace", "generate", "tool-user", "--count", "5", "--output", str(path)]) == 0
    assert main(["advise", str(path)]) == 2
    assert "--absent-environment-s" in capsys.readouterr().err
    assert main(["advise", str(path), "--absent-environment-s", "1", "--orders", "6"]) == 0
