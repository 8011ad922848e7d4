"""What a configuration is worth, on orders of the batch that the search has not seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median
from typing import Final

CONFIDENCE: Final = 0.95
LEAST_SEEDS: Final = 6
"""Below, no interval between two of the values covers the median with that confidence."""


@dataclass(frozen=True)
class Interval:
    """The median of some values, and two of these between which the true median lies with CONFIDENCE."""

    median: float
    low: float
    high: float


def interval(values: Sequence[float]) -> Interval:
    """The distribution-free interval of order statistics: P(median < x_(k)) = P(Bin(n, 1/2) < k).

    Of at least LEAST_SEEDS values; k is the largest with 2 P(Bin(n, 1/2) < k) <= 1 - CONFIDENCE.
    """
    ordered, count = sorted(values), len(values)
    below, place = 0, 0
    while 2 * (below + comb(count, place)) <= (1 - CONFIDENCE) * 2**count:
        below += comb(count, place)
        place += 1
    return Interval(median(ordered), ordered[place - 1], ordered[count - place])


def saving(makespans_s: Sequence[float], reference_s: Sequence[float]) -> Interval:
    """The share of the reference's makespan that is saved, order by order."""
    return interval([1 - one / other for one, other in zip(makespans_s, reference_s, strict=True)])
