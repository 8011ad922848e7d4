"""Histograms with round edges: equal bins for counts, 1-2-5 bins for durations over many decades."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MAX_BINS = 15
MIN_LOG_EDGE = 0.001


@dataclass(frozen=True)
class Histogram:
    """`counts[i]` values lie in [edges[i], edges[i + 1])."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


def linear_histogram(values: Sequence[int]) -> Histogram:
    """At most 15 equal bins whose width is 1, 2 or 5 times a power of ten. `values` is not empty."""
    low, high = min(values), max(values)
    width = next(
        width
        for width in (step * 10**power for power in range(19) for step in (1, 2, 5))
        if high // width - low // width < MAX_BINS
    )
    edges = range(low // width * width, (high // width + 2) * width, width)
    return _count(tuple(edges), values)


def log_histogram(values: Sequence[float]) -> Histogram:
    """Bins that end at 1, 2 and 5 times powers of ten; at powers of ten alone if those are more than 15.

    Values below the first edge, which is 0.001 or more, are in a first bin that starts at 0. `values` is not
    empty and not negative.
    """
    low, high = max(min(values), MIN_LOG_EDGE), max(values)
    if high < low:
        return Histogram((0.0, MIN_LOG_EDGE), (len(values),))
    edges = _log_edges(low, high, (1, 2, 5))
    if len(edges) - 1 > MAX_BINS:
        edges = _log_edges(low, high, (1,))
    if min(values) < edges[0]:
        edges = [0.0, *edges]
    return _count(tuple(edges), values)


def _log_edges(low: float, high: float, steps: tuple[int, ...]) -> list[float]:
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    # Through text, since 5 * 10**-2 is not the float 0.05.
    edges = [float(f"{step}e{power}") for power in powers for step in steps]
    first = bisect_right(edges, low) - 1
    return edges[first : bisect_right(edges, high) + 1]


def _count(edges: tuple[float, ...], values: Iterable[float]) -> Histogram:
    counts = [0] * (len(edges) - 1)
    for value in values:
        counts[bisect_right(edges, value) - 1] += 1
    return Histogram(edges, tuple(counts))
