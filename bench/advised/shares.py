"""Savings over seeds: their mean with an interval, their median with one, and the worst."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import Final

from coresched.lab.advice.judgement import CONFIDENCE, Interval, interval

RESAMPLES: Final = 4_000


@dataclass(frozen=True)
class Shares:
    """Of the savings of one case, a share of the makespan each."""

    mean: float
    mean_low: float
    mean_high: float
    median: Interval
    worst: float


def shares(values: Sequence[float]) -> Shares:
    """The mean's interval is the percentile bootstrap's (Efron 1979), with the same draws each time.

    Raises ValueError for less than `LEAST_SEEDS` values, which no interval of the median is made of.
    """
    draw, count = Random(0), len(values)
    means = sorted(fmean(draw.choices(values, k=count)) for _ in range(RESAMPLES))
    outside = round((1 - CONFIDENCE) / 2 * RESAMPLES)
    return Shares(fmean(values), means[outside], means[-1 - outside], interval(values), min(values))
