"""The charts that reports of simulated runs and of replays have in common."""

from collections.abc import Sequence
from html import escape

from coresched.lab.report.series import Points
from coresched.lab.report.svg import Line, line_chart
from coresched.lab.units import TimeUnit

NamedCurve = tuple[str, Points]
"""A name for the legend, and (seconds, value)."""


def completion_chart(
    curves: Sequence[NamedCurve], unit: TimeUnit, end_s: float, groups: Sequence[int] | None = None
) -> str:
    """Completed fractions over time, one curve a run; the first is the reference, the last stands out.

    With ``groups``, ascending from 0, curves of one group look alike, and the legend has each name once.
    """
    return line_chart(
        _by_run(curves, unit, groups),
        x_label=f"time ({unit.name})",
        y_label="completed",
        x_max=unit.scale(end_s),
        y_max=1.0,
        percent=True,
    )


def in_flight_chart(curves: Sequence[NamedCurve], unit: TimeUnit, end_s: float) -> str:
    """Requests in flight over time, one curve a run."""
    return line_chart(
        _by_run(curves, unit),
        x_label=f"time ({unit.name})",
        y_label="requests in flight",
        x_max=unit.scale(end_s),
        y_max=highest(curves),
    )


def worker_charts(
    runs: Sequence[tuple[str, Sequence[NamedCurve]]], unit: TimeUnit, end_s: float
) -> list[str]:
    """A chart a run, with the requests in flight of each of its workers, all to one scale."""
    most = max(highest(workers) for _, workers in runs)
    charts = []
    for name, workers in runs:
        lines = [
            Line(worker, _scaled(points, unit), f"w{number % 6}")
            for number, (worker, points) in enumerate(workers)
        ]
        chart = line_chart(
            lines,
            x_label=f"time ({unit.name})",
            y_label="requests in flight",
            x_max=unit.scale(end_s),
            y_max=most,
        )
        charts.append(f"<h3>{escape(name)}</h3>{chart}")
    return charts


def run_style(number: int, count: int) -> str:
    """CSS class of a run's curve: the first is the grey reference, the last one stands out."""
    if number == 0:
        return "first"
    return "last" if number == count - 1 else f"between b{number % 5}"


def highest(curves: Sequence[NamedCurve]) -> float:
    """The largest value of all; 0 without curves."""
    return max((value for _, points in curves for _, value in points), default=0.0)


def _by_run(curves: Sequence[NamedCurve], unit: TimeUnit, groups: Sequence[int] | None = None) -> list[Line]:
    of = range(len(curves)) if groups is None else groups
    return [
        Line(name, _scaled(points, unit), run_style(number, of[-1] + 1))
        for number, (name, points) in zip(of, curves, strict=True)
    ]


def _scaled(points: Points, unit: TimeUnit) -> Points:
    return [(unit.scale(t), value) for t, value in points]
