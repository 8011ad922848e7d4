"""What a policy did inside an engine's scheduler, in numbers that only grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Counts:
    """What a policy did since it was made; every number only grows."""

    FAMILY: ClassVar[str]
    """What its metrics are called."""

    passes: int
    changes: int
    """Passes that changed the order."""
    seconds: float
    """Time taken by the passes, with what they asked the engine."""
    hits: int
    """Admitted requests whose label was in the policy's first tier."""
    misses: int
    """Admitted requests whose label was not."""
    unlabelled: int
    """Admitted requests without a label."""
    refused_labels: int
    """Requests whose label could not be one."""


@dataclass(frozen=True)
class PrefixCounts(Counts):
    """Of routing-prefix."""

    FAMILY = "prefix"
    queries: int
    """Requests whose prefix hit was asked for."""


@dataclass(frozen=True)
class ResidencyCounts(Counts):
    """Of routing-residency."""

    FAMILY = "residency"
    lost: int
    """How often the cache lost what it held of a trajectory."""
    held_back: int
    """Passes in which a request waited so that no live trajectory was evicted."""
