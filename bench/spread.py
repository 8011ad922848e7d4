"""The statistics of repeated timings."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles


@dataclass(frozen=True)
class Spread:
    """Median and quartiles, in the unit of the samples."""

    median: float
    q1: float
    q3: float

    @property
    def relative_iqr(self) -> float:
        """(q3 - q1) / median; 0 where the quartiles are equal."""
        return (self.q3 - self.q1) / self.median if self.q3 > self.q1 else 0.0


def spread_of(samples: Sequence[float]) -> Spread:
    """Quartile p lies at place p (n - 1) of the ascending samples, linearly interpolated.

    Raises ValueError when there is no sample.
    """
    if not samples:
        raise ValueError("samples must hold at least one timing, got none")
    if len(samples) == 1:
        return Spread(samples[0], samples[0], samples[0])
    q1, _, q3 = quantiles(samples, n=4, method="inclusive")
    return Spread(median(samples), q1, q3)
