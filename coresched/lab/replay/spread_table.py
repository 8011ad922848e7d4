"""Medians and spread of configurations as rows of text: a row for each metric, then one a configuration."""

from collections.abc import Callable, Iterator, Sequence

from coresched.lab.replay.spread import Repeated, Spread
from coresched.lab.units import TimeUnit, count_text, percent_text

INDENT = "  "
Row = tuple[str, str, str, str, str]
"""Metric or indented configuration, median, its spread, ratio to the first configuration, its spread."""
Text = Callable[[float], str]


def spread_unit(groups: Sequence[Repeated]) -> TimeUnit | None:
    """The unit of all times; None where no run came to its end."""
    known = [metrics.elapsed_s for group in groups for metrics in group.metrics.values()]
    return TimeUnit(max(known)) if known else None


def spread_heads(groups: Sequence[Repeated]) -> Sequence[str]:
    """The heads of the columns: of one configuration there is no ratio."""
    heads = ("", "median", "min to max")
    return heads if len(groups) == 1 else (*heads, f"over {groups[0].name}", "min to max")


def spread_rows(groups: Sequence[Repeated], unit: TimeUnit) -> Iterator[Row]:
    """A metric's name, then its row for each configuration, and so on.

    The ratios are of runs of one round, and the first configuration has none. What no run knows is a dash.
    """
    spreads = [group.spreads() for group in groups]
    ratios = [group.over(groups[0]) for group in groups]
    for metric, name, text in _metrics(unit):
        if not any(metric in found for found in spreads):
            continue
        yield name, "", "", "", ""
        for place, group in enumerate(groups):
            own = _texts(spreads[place].get(metric), text)
            over = _texts(ratios[place].get(metric), "{:.3f}".format) if place else ("", "")
            yield (INDENT + group.name, *own, *over)


def verdicts(groups: Sequence[Repeated], unit: TimeUnit) -> Iterator[str]:
    """What came of each configuration beside the first one, a sentence each."""
    first = groups[0]
    for group in groups[1:] or groups:
        makespan = group.spreads().get("makespan_s")
        ratio = group.over(first).get("makespan_s")
        if makespan is None:
            yield f"No run of {group.name} came to its end."
        elif len(groups) == 1 or ratio is None:
            yield f"{group.name} took {unit.text(makespan.median)} {unit.name} in the median."
        else:
            rounds = f"{ratio.low:.3f} to {ratio.high:.3f} in {ratio.runs} rounds"
            yield (
                f"{group.name} took {ratio.median:.3f} of the time of {first.name}"
                f"{f' ({rounds})' if ratio.runs > 1 else ''}."
            )


def _metrics(unit: TimeUnit) -> Sequence[tuple[str, str, Text]]:
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


def _texts(spread: Spread | None, text: Text) -> tuple[str, str]:
    if spread is None:
        return "-", ""
    if spread.runs == 1:
        return text(spread.median), ""
    return text(spread.median), f"{text(spread.low).removesuffix(' %')} to {text(spread.high)}"
