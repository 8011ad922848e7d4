"""Replays of one workload side by side, in the columns of simulated runs."""

from collections.abc import Sequence
from typing import Final

from coresched.lab.replay.summary import ReplayMetrics
from coresched.lab.units import TimeUnit, count_text, percent_text, saved_text

COLUMNS: Final = ("run", "makespan", "gain", "cache reuse", "new prefill", "in flight", "L5", "imbalance")


def unit_of(runs: Sequence[tuple[str, ReplayMetrics]]) -> TimeUnit:
    return TimeUnit(max(metrics.elapsed_s for _, metrics in runs))


def table_rows(runs: Sequence[tuple[str, ReplayMetrics]], unit: TimeUnit) -> list[tuple[str, ...]]:
    """One row of text for each (name, metrics), in the order of COLUMNS; the first run is the reference.

    What a stopped replay or a silent engine leaves unknown is a dash.
    """
    reference = runs[0][1].makespan_s
    rows: list[tuple[str, ...]] = []
    for place, (name, metrics) in enumerate(runs):
        makespan, tail = metrics.makespan_s, metrics.tail_s
        gain = "" if place == 0 else "-"
        if place and makespan is not None and reference is not None:
            gain = saved_text(makespan, reference)
        rows.append(
            (
                name,
                "-" if makespan is None else unit.text(makespan),
                gain,
                percent_text(metrics.cache_reuse),
                "-" if metrics.new_prefill_tokens is None else count_text(metrics.new_prefill_tokens),
                f"{metrics.mean_in_flight:.1f}",
                "-" if tail is None else unit.text(tail["5"]),
                percent_text(metrics.request_imbalance),
            )
        )
    return rows
