"""What repeated runs of one configuration have in common: medians and spread, and ratios by round."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import Any, Final

from coresched.lab.metrics import TAIL_PERCENTS
from coresched.lab.replay.summary import ReplayMetrics


@dataclass(frozen=True)
class Spread:
    """Of ``runs`` runs."""

    median: float
    low: float
    high: float
    runs: int


def spread_of(values: Sequence[float]) -> Spread:
    """Raises ValueError without values."""
    if not values:
        raise ValueError("values must hold at least one, got none")
    return Spread(median(values), min(values), max(values), len(values))


_TABLES: Final = ("tail_s", "turns_by_worker")


def numbers_of(metrics: ReplayMetrics) -> dict[str, float]:
    """What is known of a run, a number each: its fields, and ``tail_s`` as ``tail_5_s`` and so on."""
    known = {
        field.name: value
        for field in fields(metrics)
        if field.name not in _TABLES and (value := getattr(metrics, field.name)) is not None
    }
    if metrics.tail_s is not None:
        known |= {f"tail_{percent}_s": metrics.tail_s[str(percent)] for percent in TAIL_PERCENTS}
    return known


@dataclass(frozen=True)
class Repeated:
    """One configuration's runs, in order: how each ended, and the metrics of those that came to their end.

    ``metrics`` are by round, so that they can be paired with another configuration's of the same round.
    """

    name: str
    statuses: Mapping[str, str]
    metrics: Mapping[Hashable, ReplayMetrics]

    def spreads(self) -> dict[str, Spread]:
        """Of each metric that all completed runs know; empty where no run completed."""
        return _spreads([numbers_of(one) for one in self.metrics.values()])

    def over(self, first: Repeated) -> dict[str, Spread]:
        """Ratios of each metric to ``first``'s in the same round; without those that are 0 there."""
        pairs = [
            (numbers_of(self.metrics[place]), numbers_of(first.metrics[place]))
            for place in self.metrics
            if place in first.metrics
        ]
        return _spreads(
            [
                {metric: value / of_first[metric] for metric, value in own.items() if of_first.get(metric)}
                for own, of_first in pairs
            ]
        )


def spreads_as_json(group: Repeated, first: Repeated) -> dict[str, Any]:
    """The runs of a configuration and what they come to, alone and over those of the first one."""
    return {
        "name": group.name,
        "runs": dict(group.statuses),
        "metrics": {metric: asdict(spread) for metric, spread in group.spreads().items()},
        "over_first": {metric: asdict(spread) for metric, spread in group.over(first).items()},
    }


def _spreads(runs: Sequence[Mapping[str, float]]) -> dict[str, Spread]:
    if not runs:
        return {}
    return {
        metric: spread_of([run[metric] for run in runs])
        for metric in runs[0]
        if all(metric in run for run in runs)
    }
