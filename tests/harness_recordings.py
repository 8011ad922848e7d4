"""What a harness's run recorded, held against what the model's server and the tools saw of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coresched.cli.main import main
from coresched.recording.events import EnvironmentStage
from coresched.recording.merge import read_recording
from coresched.recording.reader import recording_files
from coresched.trajectory.reader import load_trajectories

CLOCKS_S = 0.02
"""By how much the clock of a recording, read once at its start, and the tools' may come to differ."""


@dataclass(frozen=True)
class ToolRun:
    """When one tool ran, by its own clock, in seconds since 1970; `sample` is its trajectory's label."""

    sample: str
    start_s: float
    end_s: float


def check_recording(
    folder: Path, requests: Iterable[Mapping[str, Any]], tools: Sequence[ToolRun], slots: int
) -> None:
    """`folder` is a CORESCHED_RECORD, `requests` the server's log of the same run, `slots` its C_E.

    `coresched trace import` gives each sample with the turns that the server saw and its counts, and stages
    in which the tools ran. No more than `slots` of these overlap: none holds a wait in the queue.
    """
    trace = folder.with_name(f"{folder.name}.trace.jsonl")
    assert main(["trace", "import", str(folder), "--output", str(trace)]) == 0
    served: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for request in requests:
        served[request["label"]].append(request)
    stages: dict[str, list[EnvironmentStage]] = defaultdict(list)
    recording = read_recording(recording_files(folder))
    for event in recording.events:
        if isinstance(event, EnvironmentStage):
            stages[event.sample].append(event)
    found = {trajectory.id: trajectory for trajectory in load_trajectories(trace)}
    assert found.keys() == served.keys()
    for label, trajectory in found.items():
        assert trajectory.prompt_tokens() == [request["prompt_tokens"] for request in served[label]]
        counted = [request["output_tokens"] for request in served[label]]
        assert [turn.output_tokens for turn in trajectory.turns] == counted
        ran = [turn.env for turn in trajectory.turns if turn.env is not None and turn.env.n_calls]
        assert {stage.quality for stage in ran} <= {"exact"}  # some replies have no calls
        held = [stage.ended_s - stage.started_s for stage in stages[label]]
        assert sum(stage.duration_s or 0 for stage in ran) == pytest.approx(sum(held), abs=1e-3)
    assert tools
    for tool in tools:
        start_s, end_s = tool.start_s - recording.began_at, tool.end_s - recording.began_at
        assert any(
            stage.started_s - CLOCKS_S <= start_s and end_s <= stage.ended_s + CLOCKS_S
            for stage in stages[tool.sample]
        ), tool
    assert _most_at_once([stage for several in stages.values() for stage in several]) <= slots
    assert main(["report", str(folder), "--report", str(folder.with_name("report.html"))]) == 0


def _most_at_once(stages: Sequence[EnvironmentStage]) -> int:
    steps = sorted([(stage.started_s, 1) for stage in stages] + [(stage.ended_s, -1) for stage in stages])
    running = most = 0
    for _, step in steps:
        running += step
        most = max(most, running)
    return most
