"""Replays of one batch on live engines, as one HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from coresched.lab.replay.events import Admission, AnyEvent, Completion, FailedInference, Inference
from coresched.lab.replay.summary import ReplayMetrics
from coresched.lab.replay.table import COLUMNS, table_rows, unit_of
from coresched.lab.report.html import curve_style, definitions, html_page, html_table
from coresched.lab.report.series import completion_curve, in_flight_curves, total_curve
from coresched.lab.report.svg import Line, line_chart

NOTE = (
    "Gain is the makespan saved against the first run. Cache reuse is the share of prompt tokens were in a "
    "prefix cache, new prefill is the rest. L5 is the time the last 5 % of the samples take. Imbalance is "
    "the mean over time of the workers' deviation from an equal number of requests in flight. One run of "
    "each: another may differ by some percent."
)


@dataclass(frozen=True)
class LiveRun:
    """A replay that came to its end, and in a sentence what it is or adds."""

    name: str
    adds: str
    metrics: ReplayMetrics
    events: Sequence[AnyEvent]


class Course:
    """What curves show of a replay, in seconds since its first admission: a `RunCourse`."""

    def __init__(self, run: LiveRun) -> None:
        names = list(run.metrics.turns_by_worker)
        began = min(event.at_s for event in run.events if isinstance(event, Admission))
        self.workers = len(names)
        self.completed_s = sorted(event.at_s - began for event in run.events if isinstance(event, Completion))
        changes = []
        for event in run.events:
            if isinstance(event, Inference | FailedInference) and event.worker in names:
                worker = names.index(event.worker)
                changes += [(event.sent_s - began, worker, 1), (event.ended_s - began, worker, -1)]
        changes.sort(key=lambda change: (change[0], -change[2]))
        self.load_t = [at for at, _, _ in changes]
        self.load_worker = [worker for _, worker, _ in changes]
        self.load_change = [change for _, _, change in changes]


def live_page(title: str, lead: str, workload: str, runs: Sequence[LiveRun]) -> str:
    """Table, completion curves and requests in flight. All runs must have a makespan."""
    named = [(run.name, run.metrics) for run in runs]
    unit = unit_of(named)
    end_s = max(run.metrics.makespan_s or 0.0 for run in runs)
    courses = [Course(run) for run in runs]
    completed = [completion_curve(course) for course in courses]
    in_flight = [total_curve(in_flight_curves(course, end_s)) for course in courses]

    def chart(curves: Sequence[list[tuple[float, float]]], label: str, most: float, percent: bool) -> str:
        lines = [
            Line(run.name, [(unit.scale(t), value) for t, value in curve], curve_style(number, len(runs)))
            for number, (run, curve) in enumerate(zip(runs, curves, strict=True))
        ]
        return line_chart(
            lines,
            x_label=f"time ({unit.name})",
            y_label=label,
            x_max=unit.scale(end_s),
            y_max=most,
            percent=percent,
        )

    heads = [f"{name} ({unit.name})" if name in ("makespan", "L5") else name for name in COLUMNS]
    most = max(value for curve in in_flight for _, value in curve)
    return html_page(
        title,
        [
            f"<h1>{escape(title)}</h1>",
            f'<p class="lead">{escape(lead)}</p>',
            f"<p>{escape(workload)}</p>",
            html_table(heads, table_rows(named, unit)),
            "<h2>Completed samples over time</h2>",
            chart(completed, "completed", 1.0, True),
            "<h2>Requests in flight over time</h2>",
            chart(in_flight, "requests in flight", most, False),
            "<h2>What each run is</h2>",
            definitions([(run.name, run.adds) for run in runs]),
            f"<p class='note'>{NOTE}</p>",
        ],
    )
