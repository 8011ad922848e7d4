"""`coresched trace history`: what it writes from traces and recordings, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from coresched import sync
from coresched.batch.history import read_history
from coresched.cli.main import main
from coresched.trajectory.schema import Environment, Trajectory, Turn
from coresched.trajectory.writer import write_trajectories


def attempt(name: str, *turns: tuple[int, float | None, float], **meta: Any) -> Trajectory:
    """Turns of (output tokens, seconds of inference, seconds of the stage)."""
    made = tuple(
        Turn(output_tokens=tokens, infer_s=inference_s, env=Environment(duration_s=stage_s))
        for tokens, inference_s, stage_s in turns
    )
    return Trajectory(id=name, initial_prompt_tokens=10, turns=made, meta=meta)


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_attempts_at_a_task_count_with_their_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, output = tmp_path / "t.jsonl", tmp_path / "history.jsonl"
    write_trajectories(
        trace,
        [
            attempt("a", (5, 1.0, 2.0), (7, 0.5, 0.25)),
            attempt("a#2", (5, 2.0, 4.25)),
            attempt("a#3", (5, 90.0, 0.0), completed=False),
            attempt("b", (1, 1.0, 0.0), completed=False),
            attempt("b#2", (1, 3.0, 0.0), completed=False),
        ],
    )
    assert main(["trace", "history", str(trace), "-o", str(output)]) == 0
    assert lines(output) == [{"task": "a", "seconds": 5.0}, {"task": "b", "seconds": 3.0}]
    said = capsys.readouterr().out
    assert "2 tasks of 5 trajectories; seconds 3 to 5, median 5" in " ".join(said.split())
    for by, length in (("output-tokens", 8.5), ("turns", 1.5)):
        assert main(["trace", "history", str(trace), "--by", by, "--output", str(output)]) == 0
        assert lines(output)[0] == {"task": "a", by.replace("-", "_"): length}


def test_an_attempt_that_was_compacted_is_as_long_as_its_parts(tmp_path: Path) -> None:
    trace, output = tmp_path / "t.jsonl", tmp_path / "history.jsonl"
    write_trajectories(
        trace,
        [
            attempt("a", (5, 10.0, 2.0)),
            attempt("a#2", (5, 20.0, 4.0), part=2),
            attempt("a~2", (5, 50.0, 0.0)),
            attempt("b", (5, 1.0, 1.0), completed=False),
            attempt("b#2", (5, 1.5, 0.0), completed=False, part=2),
            attempt("b#3", (5, 0.5, 0.0), completed=False, part=3),
        ],
    )
    assert main(["trace", "history", str(trace), "-o", str(output)]) == 0
    assert lines(output) == [{"task": "a", "seconds": 43.0}, {"task": "b", "seconds": 4.0}]


def test_a_recording_tells_what_a_batch_took(tmp_path: Path) -> None:
    with sync.Batch(sample_concurrency=2, record=tmp_path / "run") as batch:
        for name, turns in (("short", 1), ("long#2", 3)):
            with batch.sample(name) as sample:
                for _ in range(turns):
                    with sample.inference() as turn:
                        turn.usage(prompt_tokens=10, output_tokens=5)
                    with sample.environment():
                        pass
    output = tmp_path / "history.jsonl"
    assert main(["trace", "history", str(tmp_path / "run"), "--by", "turns", "-o", str(output)]) == 0
    history = read_history(output)
    assert (history.expected("short"), history.expected("long")) == (1.0, 3.0)


def test_seconds_that_are_not_known_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, output = tmp_path / "t.jsonl", tmp_path / "history.jsonl"
    write_trajectories(trace, [attempt("a", (5, None, 2.0))])
    assert main(["trace", "history", str(trace), "-o", str(output)]) == 2
    assert "trajectory 'a': turns[0].infer_s is absent" in capsys.readouterr().err
    assert not output.exists()


def test_an_input_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "t.jsonl"
    write_trajectories(trace, [attempt("a", (5, 1.0, 2.0))])
    assert main(["trace", "history", str(trace), "-o", str(trace)]) == 2
    assert "is an input of this command" in capsys.readouterr().err


def test_a_compressed_history_is_refused_as_no_gate_could_read_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, output = tmp_path / "t.jsonl", tmp_path / "history.jsonl.gz"
    write_trajectories(trace, [attempt("a", (5, 1.0, 2.0))])
    assert main(["trace", "history", str(trace), "-o", str(output)]) == 2
    assert "a history is not compressed; give a name in .jsonl" in capsys.readouterr().err
    assert not output.exists()
