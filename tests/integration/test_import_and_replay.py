"""Recordings of harnesses, imported and replayed on a simulated worker; the replay, imported and replayed."""

from pathlib import Path

import pytest
from simulated_worker import CHECKOUT, running_worker

from coresched.cli.main import main
from coresched.trajectory.reader import load_trajectories
from coresched.trajectory.schema import Trajectory

RECORDINGS = CHECKOUT / "tests" / "unit" / "trajectory" / "recordings"


def tokens(path: str) -> dict[str, tuple[list[int], list[int]]]:
    """Prompts and outputs of each trajectory."""

    def of(one: Trajectory) -> tuple[list[int], list[int]]:
        return one.prompt_tokens(), [turn.output_tokens for turn in one.turns]

    return {one.id: of(one) for one in load_trajectories(path)}


def pauses(path: str) -> dict[str, list[float | None]]:
    """What each trajectory waits between its turns."""
    return {
        one.id: [turn.env.duration_s for turn in one.turns[:-1] if turn.env is not None]
        for one in load_trajectories(path)
    }


def test_the_trace_of_a_replay_and_of_its_replay_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = [str(RECORDINGS / name) for name in ("task-0.traj.json", "counting.eval", "spans.json")]
    assert main(["trace", "import", *files, "--output", "0.jsonl"]) == 0
    assert len(tokens("0.jsonl")) == 5
    with running_worker("--speed", "50") as (url, _):
        for before, after in (("0", "1"), ("1", "2")):
            replay = ["replay", f"{before}.jsonl", "--endpoint", url, "--speed", "50", "--output", after]
            limits = ["--sample-concurrency", "5", "--environment-concurrency", "1"]
            assert main([*replay, *limits]) == 0
            assert main(["trace", "import", after, "--output", f"{after}.jsonl"]) == 0
    assert tokens("0.jsonl") == tokens("1.jsonl") == tokens("2.jsonl")
    assert pauses("0.jsonl") == pauses("1.jsonl") == pauses("2.jsonl")
