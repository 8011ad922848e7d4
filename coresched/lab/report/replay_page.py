"""Replays as one HTML page: one of them, or several of the same workload side by side."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from coresched.lab.replay.events import Completion, FailedInference, Inference
from coresched.lab.replay.groups import RunGroup, run_groups
from coresched.lab.replay.plan import ReplaySettings
from coresched.lab.replay.recorded import RecordedRun
from coresched.lab.replay.spread_table import spread_heads, spread_rows, spread_unit, verdicts
from coresched.lab.replay.summary import ended
from coresched.lab.replay.table import COLUMNS, table_rows, unit_of
from coresched.lab.report.charts import (
    NamedCurve,
    completion_chart,
    in_flight_chart,
    run_style,
    worker_charts,
)
from coresched.lab.report.gantt import gantt_chart
from coresched.lab.report.html import html_page, html_table
from coresched.lab.report.series import Points, completion_curve, in_flight_curves, total_curve
from coresched.lab.report.svg import Line, line_chart
from coresched.lab.units import TimeUnit, count_text, percent_text, saved_text

NOTE = (
    "Gain is the makespan saved against the first run. L5 and L10 are the times the last 5 and 10 % of the "
    "samples take. Imbalance is the mean over time of the workers' deviation from an equal number of "
    "requests in flight; output imbalance is that of the tokens they generated. A dash is what a stopped "
    "run or a silent engine leaves unknown. Times are seconds since the batch began, times the replay's "
    "speed."
)


def replay_page(runs: Sequence[RecordedRun]) -> str:
    """Tables, curves, cache reuse by turn, and a Gantt chart of each run. ``runs`` are of one workload.

    Of repeated runs there are medians and spread, and the charts show one run of each configuration.
    """
    groups = run_groups(runs)
    repeated = len(groups) < len(runs)
    everyone, runs = runs, [group.median_run for group in groups]
    named = [(run.name, run.metrics) for run in everyone]
    unit = unit_of(named)
    end_s = max(ended(event) for run in everyone for event in run.events) or 1.0
    loads = [(run.name, _loads(run, end_s)) for run in runs]
    what = "Recorded run" if runs[0].recorded else "Replay"
    title = f"{what} of {runs[0].samples:,} trajectories, {runs[0].turns:,} turns"
    columns = [place for place, name in enumerate(COLUMNS) if name != "gain" or len(runs) > 1]
    heads = [f"{name} ({unit.name})" if name in ("makespan", "L5") else name for name in COLUMNS]
    return html_page(
        title,
        [
            f"<h1>{title}</h1>",
            f'<p class="lead">{escape(verdict(everyone, unit))}</p>',
            *(_spread_sections(groups) if repeated else ()),
            html_table(
                [heads[place] for place in columns],
                [tuple(row[place] for place in columns) for row in table_rows(named, unit)],
            ),
            *([f"<p class='note'>{MEDIAN_RUNS}</p>"] if repeated else ()),
            "<h2>How each was run</h2>",
            html_table(SETTINGS_COLUMNS, [_settings_row(run) for run in runs]),
            "<h2>Where the time went</h2>",
            html_table(*_time_table(runs, unit)),
            "<h2>Completed samples over time</h2>",
            completion_chart(
                [(_legend(group), _completion(run)) for group in groups for run in group.runs],
                unit,
                end_s,
                [place for place, group in enumerate(groups) for _ in group.runs],
            ),
            "<h2>Requests in flight over time</h2>",
            in_flight_chart([(name, total_curve([c for _, c in one])) for name, one in loads], unit, end_s),
            "<h2>Load of each worker</h2>",
            *worker_charts(loads, unit, end_s),
            *_reuse_chart(runs),
            "<h2>Trajectories over time</h2>",
            *(f"<h3>{escape(run.name)}</h3>{gantt_chart(run.events, unit, end_s)}" for run in runs),
            f"<p class='note'>{NOTE}</p>",
        ],
    )


def verdict(runs: Sequence[RecordedRun], unit: TimeUnit) -> str:
    """The comparison, or what there is of it, in a sentence."""
    stopped = [_stopped(run) for run in runs if run.metrics.makespan_s is None]
    groups = run_groups(runs)
    if len(groups) < len(runs):
        return " ".join([*verdicts([group.repeated for group in groups], unit), *stopped])
    if stopped:
        return " ".join(stopped)
    first, last = runs[0], runs[-1]
    assert first.metrics.makespan_s is not None
    assert last.metrics.makespan_s is not None
    text = f"{unit.text(last.metrics.makespan_s)} {unit.name}"
    if len(runs) == 1:
        return f"All samples completed in {text}."
    saved = saved_text(last.metrics.makespan_s, first.metrics.makespan_s)
    than = f"{saved.removeprefix('-')} {'more' if saved.startswith('-') else 'less'}"
    return f"{last.name} took {text}, which is {than} than {first.name}."


MEDIAN_RUNS = (
    "What follows, but for the completed samples, is of one run of each configuration: that with the median "
    "makespan."
)


def _spread_sections(groups: Sequence[RunGroup]) -> list[str]:
    repeated = [group.repeated for group in groups]
    heads, unit = spread_heads(repeated), spread_unit(repeated)
    if unit is None:
        return []
    rows = [row[: len(heads)] for row in spread_rows(repeated, unit)]
    return [
        "<h2>Medians and spread</h2>",
        html_table(heads, rows, style="spread"),
        "<h2>Every run</h2>",
    ]


def _legend(group: RunGroup) -> str:
    return group.name if len(group.runs) == 1 else f"{group.name} ({len(group.runs)} runs)"


def _stopped(run: RecordedRun) -> str:
    why = f": {run.reason}" if run.reason else ""
    return (
        f"{run.name} did not reach its end ({run.status}{why}); "
        f"{run.metrics.completed_samples:,} of {run.samples:,} samples completed."
    )


SETTINGS_COLUMNS = (
    "run",
    "C_S",
    "C_E",
    "environment",
    "router",
    "workers",
    "speed",
    "model",
    "started (UTC)",
)


def _settings_row(run: RecordedRun) -> tuple[str, ...]:
    settings = run.settings
    if settings is None:  # no harness recorded the options of its batch
        scheduled: tuple[str, ...] = ("-", "-", "-", "-")
    else:
        scheduled = (
            f"{settings.sample_concurrency:,}",
            "no cap" if settings.environment_concurrency is None else f"{settings.environment_concurrency:,}",
            settings.environment_policy,
            _router(run, settings),
        )
    return (
        run.name,
        *scheduled,
        f"{len(run.workers):,}",
        "1" if settings is None else f"{settings.speed:g}",
        ", ".join(run.models) or "-",
        run.started_at[:16].replace("T", " "),
    )


def _router(run: RecordedRun, settings: ReplaySettings) -> str:
    if run.recorded:
        return "-"  # which the harness chose
    return f"{settings.router}, of the service" if run.service else settings.router


def _time_table(runs: Sequence[RecordedRun], unit: TimeUnit) -> tuple[list[str], list[tuple[str, ...]]]:
    heads = [
        "run",
        f"L10 ({unit.name})",
        f"model calls ({unit.name})",
        f"slot waits ({unit.name})",
        f"environment ({unit.name})",
        "first token (s)",
        "migrations",
        "failed",
        "output imbalance",
        "output tokens",
    ]
    rows: list[tuple[str, ...]] = [
        (
            run.name,
            "-" if run.metrics.tail_s is None else unit.text(run.metrics.tail_s["10"]),
            unit.text(run.metrics.inference_s),
            unit.text(run.metrics.environment_queue_s),
            unit.text(run.metrics.environment_s),
            "-" if run.metrics.ttft_s is None else f"{run.metrics.ttft_s:.2f}",
            f"{run.metrics.migrations:,}",
            f"{run.metrics.failed_requests:,}",
            percent_text(run.metrics.output_imbalance),
            "-" if run.metrics.output_tokens is None else count_text(run.metrics.output_tokens),
        )
        for run in runs
    ]
    return heads, rows


def _completion(run: RecordedRun) -> Points:
    completed = sorted(event.at_s for event in run.events if isinstance(event, Completion))
    return completion_curve(completed, run.samples)


def _loads(run: RecordedRun, end_s: float) -> list[NamedCurve]:
    """Requests in flight on each worker, also those that failed there."""
    place = {worker: number for number, worker in enumerate(run.workers)}
    changes = []
    for event in run.events:
        # A request that failed at a gateway itself reached none of the workers.
        if isinstance(event, Inference | FailedInference) and event.worker in place:
            changes.append((event.sent_s, place[event.worker], 1))
            changes.append((event.ended_s, place[event.worker], -1))
    changes.sort(key=lambda change: (change[0], -change[2]))
    return list(zip(run.workers, in_flight_curves(changes, len(run.workers), end_s), strict=True))


def _reuse_chart(runs: Sequence[RecordedRun]) -> list[str]:
    lines = []
    for number, run in enumerate(runs):
        if points := reuse_by_turn(run):
            lines.append(Line(run.name, points, run_style(number, len(runs))))
    if not lines:
        return []
    last = max(turn for line in lines for turn, _ in line.points)
    chart = line_chart(
        lines, x_label="turn", y_label="cached prompt tokens", x_max=max(last, 1.0), y_max=1.0, percent=True
    )
    return ["<h2>Cache reuse by turn</h2>", chart]


def reuse_by_turn(run: RecordedRun) -> Points:
    """(turn from 1, cached prompt tokens over prompt tokens of all samples' such turns).

    Empty where the engine does not report cached tokens.
    """
    cached: dict[int, int] = {}
    prompt: dict[int, int] = {}
    for event in run.events:
        if isinstance(event, Inference):
            if event.cached_tokens is None or event.prompt_tokens is None:
                return []
            cached[event.turn] = cached.get(event.turn, 0) + event.cached_tokens
            prompt[event.turn] = prompt.get(event.turn, 0) + event.prompt_tokens
    return [(turn + 1.0, cached[turn] / prompt[turn]) for turn in sorted(prompt) if prompt[turn]]
