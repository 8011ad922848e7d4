"""A histogram of observed durations that costs little to fill."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

DECISION_S = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 1e-2)
"""Buckets for what the scheduler itself takes."""
COMMIT_S = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1.0)
"""Buckets for writes to a disk."""
STAGE_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Buckets for waits, turns and environment stages."""


class Histogram:
    """How many values fell up to each bound, and their sum.

    `bounds` ascend; a value beyond the last counts too. `observe` is one binary search, without a lock: all
    calls must come from one thread.
    """

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Each bound as Prometheus writes it, with the number of values up to it; the last is +Inf."""
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        return list(zip(names, map(float, accumulate(self._counts)), strict=True))
