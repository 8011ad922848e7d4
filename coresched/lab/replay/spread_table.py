"""Medians and spread of configurations side by side, as rows of text: a row for each metric and configuration."""

from collections.abc import Callable, Iterator, Sequence

from coresched.lab.replay.spread import Repeated, Spread
from coresched.lab.units import TimeUnit, count_text, percent_text

Row = tuple[str, str, str, str, str, str]
"""Metric, configuration, median, its spread, ratio to the first configuration, its spread."""


def spread_heads(groups: Sequence[Repeated]) -> Sequence[str]:
    """The heads of the columns: of one configuration there is no ratio."""
    heads = ("metric", "run", "median", "min to max")
    return heads if len(groups) == 1 else (*heads, f"over {groups[0].name}", "min to max")


def spread_rows(groups: Sequence[Repeated], unit: TimeUnit) -> Iterator[Row]:
    """The metric's name stands in the first row of it only.

    The ratios are of runs of one round, and the first configuration has none. What no run knows is a dash.
    """
    spreads = [group.spreads() for group in groups]
    ratios = [group.over(groups[0]) for group in groups]
    for metric, name, text in _metrics(unit):
        if not any(metric in found for found in spreads):
            continue
        for place, group in enumerate(groups):
            yield (
                "" if place else name,
                group.name,
                *_texts(spreads[place].get(metric), text),
                *(_texts(ratios[place].get(metric), "{:.3f}".format) if place else ("", "")),
            )


def _metrics(unit: TimeUnit) -> Sequence[tuple[str, str, Callable[[float], str]]]:
    return (
        ("makespan_s", f"makespan ({unit.name})", unit.text),
        ("tail_5_s", f"L5 ({unit.name})", unit.text),
        ("cache_reuse", "cache reuse", percent_text),
        ("new_prefill_tokens", "new prefill", count_text),
        ("mean_in_flight", "in flight", "{:.1f}".format),
        ("request_imbalance", "imbalance", percent_text),
        ("output_tokens_per_s", "output tokens/s", "{:,.0f}".format),
        ("environment_queue_s", f"slot waits ({unit.name})", unit.text),
    )


def _texts(spread: Spread | None, text: Callable[[float], str]) -> tuple[str, str]:
    if spread is None:
        return "-", ""
    if spread.runs == 1:
        return text(spread.median), ""
    return text(spread.median), f"{text(spread.low)} to {text(spread.high)}"
