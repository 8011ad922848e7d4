"""The comparison as one HTML page."""

from collections.abc import Sequence
from html import escape

from coresched.lab.comparison import COLUMNS, TURN_COLUMNS, Comparison, table_rows, turn_rows
from coresched.lab.report.series import completion_curve, in_flight_curves, total_curve
from coresched.lab.report.style import STYLE
from coresched.lab.report.svg import Line, line_chart
from coresched.lab.simulator.run import SimulatedRun
from coresched.lab.units import TimeUnit

NOTE = (
    "Gain is the makespan saved against the first run. L5 is the time the last 5 % of the samples take. "
    "Imbalance is the mean over time of the workers' deviation from an equal number of requests in flight. "
    "<i>x bound</i> is the makespan over the largest of three lower bounds: the longest trajectory alone, "
    "environment work over C_E, inference work with perfect cache reuse over the workers."
)


def comparison_page(comparison: Comparison) -> str:
    """Table, completion curves, in-flight over time, and per-worker load of the first and the last run."""
    unit = comparison.unit
    end_s = max(run.metrics.makespan_s for run in comparison.runs)
    first, last = comparison.runs[0], comparison.runs[-1]
    sections = [
        f"<h1>{escape(comparison.title)}</h1>",
        f'<p class="lead">{escape(comparison.verdict)}</p>',
        f"<p>Simulated in virtual time on worker model <b>{escape(comparison.model.name)}</b>; workload: "
        f"{escape(comparison.workload)}.</p>",
        _table(comparison),
        *_turn_table(comparison),
        "<h2>Completed samples over time</h2>",
        _completion_chart(comparison, unit, end_s),
        "<h2>Requests in flight over time</h2>",
        _in_flight_chart(comparison, unit, end_s),
        "<h2>Load of each worker</h2>",
        *_worker_charts([first, last], unit, end_s),
        "<h2>What each run adds</h2>",
        "<dl>"
        + "".join(
            f"<dt>{escape(rung.settings.name)}</dt><dd>{escape(rung.adds)}</dd>" for rung in comparison.rungs
        )
        + "</dl>",
        f"<p class='note'>{NOTE}</p>",
    ]
    body = "\n".join(sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(comparison.title)}</title><style>{STYLE}</style></head>\n"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def _table(comparison: Comparison) -> str:
    unit = comparison.unit
    heads = [f"{name} ({unit.name})" if name in ("makespan", "L5") else name for name in COLUMNS]
    return _html_table(heads, table_rows(comparison))


def _turn_table(comparison: Comparison) -> list[str]:
    rows = turn_rows(comparison)
    return ["<h2>Turns inside the workers</h2>", _html_table(TURN_COLUMNS, rows)] if rows else []


def _html_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _completion_chart(comparison: Comparison, unit: TimeUnit, end_s: float) -> str:
    lines = [
        Line(
            run.settings.name,
            [(unit.scale(t), value) for t, value in completion_curve(run.outcome)],
            _style(number, len(comparison.runs)),
        )
        for number, run in enumerate(comparison.runs)
    ]
    return line_chart(
        lines,
        x_label=f"time ({unit.name})",
        y_label="completed",
        x_max=unit.scale(end_s),
        y_max=1.0,
        percent=True,
    )


def _in_flight_chart(comparison: Comparison, unit: TimeUnit, end_s: float) -> str:
    lines = [
        Line(
            run.settings.name,
            [
                (unit.scale(t), value)
                for t, value in total_curve(in_flight_curves(run.outcome, run.metrics.makespan_s))
            ],
            _style(number, len(comparison.runs)),
        )
        for number, run in enumerate(comparison.runs)
    ]
    most = max(value for line in lines for _, value in line.points)
    return line_chart(
        lines,
        x_label=f"time ({unit.name})",
        y_label="requests in flight",
        x_max=unit.scale(end_s),
        y_max=most,
    )


def _worker_charts(runs: list[SimulatedRun], unit: TimeUnit, end_s: float) -> list[str]:
    curves = [in_flight_curves(run.outcome, run.metrics.makespan_s) for run in runs]
    most = max(value for workers in curves for curve in workers for _, value in curve)
    charts = []
    for run, workers in zip(runs, curves, strict=True):
        lines = [
            Line(f"worker {number}", [(unit.scale(t), value) for t, value in curve], f"w{number % 6}")
            for number, curve in enumerate(workers)
        ]
        chart = line_chart(
            lines,
            x_label=f"time ({unit.name})",
            y_label="requests in flight",
            x_max=unit.scale(end_s),
            y_max=most,
        )
        charts.append(f"<h3>{escape(run.settings.name)}</h3>{chart}")
    return charts


def _style(number: int, count: int) -> str:
    """The first run is the grey reference, the last one stands out."""
    if number == 0:
        return "first"
    return "last" if number == count - 1 else f"between b{number % 5}"
