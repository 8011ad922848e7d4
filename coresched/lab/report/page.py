"""The comparison as one HTML page."""

from html import escape

from coresched.lab.comparison import COLUMNS, TURN_COLUMNS, Comparison, table_rows, turn_rows
from coresched.lab.report.charts import completion_chart, in_flight_chart, worker_charts
from coresched.lab.report.html import html_page, html_table
from coresched.lab.report.series import Points, completion_curve, in_flight_curves, total_curve
from coresched.lab.simulator.run import SimulatedRun

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
    names = [run.settings.name for run in comparison.runs]
    completed = [run.outcome.completed_s for run in comparison.runs]
    completion = [completion_curve(times, len(times)) for times in completed]
    in_flight = [_in_flight(run) for run in comparison.runs]
    loads = [
        (name, [(f"worker {number}", curve) for number, curve in enumerate(curves)])
        for name, curves in zip(names, in_flight, strict=True)
    ]
    sections = [
        f"<h1>{escape(comparison.title)}</h1>",
        f'<p class="lead">{escape(comparison.verdict)}</p>',
        f"<p>Simulated in virtual time on worker model <b>{escape(comparison.model.name)}</b>; workload: "
        f"{escape(comparison.workload)}.</p>",
        _table(comparison),
        *_turn_table(comparison),
        "<h2>Completed samples over time</h2>",
        completion_chart(list(zip(names, completion, strict=True)), unit, end_s),
        "<h2>Requests in flight over time</h2>",
        in_flight_chart(list(zip(names, map(total_curve, in_flight), strict=True)), unit, end_s),
        "<h2>Load of each worker</h2>",
        *worker_charts([loads[0], loads[-1]], unit, end_s),
        "<h2>What each run adds</h2>",
        "<dl>"
        + "".join(
            f"<dt>{escape(rung.settings.name)}</dt><dd>{escape(rung.adds)}</dd>" for rung in comparison.rungs
        )
        + "</dl>",
        f"<p class='note'>{NOTE}</p>",
    ]
    return html_page(comparison.title, sections)


def _table(comparison: Comparison) -> str:
    unit = comparison.unit
    heads = [f"{name} ({unit.name})" if name in ("makespan", "L5") else name for name in COLUMNS]
    return html_table(heads, table_rows(comparison))


def _turn_table(comparison: Comparison) -> list[str]:
    rows = turn_rows(comparison)
    return ["<h2>Turns inside the workers</h2>", html_table(TURN_COLUMNS, rows)] if rows else []


def _in_flight(run: SimulatedRun) -> list[Points]:
    outcome = run.outcome
    changes = zip(outcome.load_t, outcome.load_worker, outcome.load_change, strict=True)
    return in_flight_curves(changes, outcome.workers, run.metrics.makespan_s)
