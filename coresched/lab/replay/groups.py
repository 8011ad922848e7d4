"""Recorded runs by configuration: those of one command that ran it several times, or of several commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from coresched.lab.replay.recorded import RecordedRun
from coresched.lab.replay.spread import Repeated
from coresched.lab.replay.summary import ReplayMetrics


@dataclass(frozen=True)
class RunGroup:
    """The runs of one configuration; a run without one is a group of its own."""

    name: str
    runs: Sequence[RecordedRun]
    repeated: Repeated

    @property
    def median_run(self) -> RecordedRun:
        """That with the median makespan (of two, the lower) of those that came to their end; or the last."""
        completed = [run for run in self.runs if run.metrics.makespan_s is not None]
        completed.sort(key=lambda run: run.metrics.makespan_s or 0.0)
        return completed[(len(completed) - 1) // 2] if completed else self.runs[-1]


def run_groups(runs: Sequence[RecordedRun]) -> list[RunGroup]:
    """In the order in which configurations first appear."""
    by_name: dict[str, list[RecordedRun]] = {}
    for run in runs:
        by_name.setdefault(run.configuration or run.name, []).append(run)
    return [RunGroup(name, own, _repeated(name, own)) for name, own in by_name.items()]


def _repeated(name: str, runs: Sequence[RecordedRun]) -> Repeated:
    """Round 1 of a second command is paired with that command's round 1 of the others."""
    met: Counter[int | None] = Counter()
    metrics: dict[Hashable, ReplayMetrics] = {}
    for run in runs:
        met[run.round] += 1
        if run.status == "completed":
            metrics[run.round, met[run.round]] = run.metrics
    return Repeated(name, {run.name: run.status for run in runs}, metrics)
