"""What the policies count inside vLLM beside what they count in every engine."""

from __future__ import annotations

from dataclasses import dataclass

from coresched_engine.counts import PrefixCounts, ResidencyCounts


@dataclass(frozen=True)
class VllmPrefixCounts(PrefixCounts):
    """Of routing-prefix."""

    states_demoted: int
    """Blocks of superseded states that were put up for eviction."""
    resumed: int
    """Admitted requests that had been pushed out before; each counts as a hit, a miss or unlabelled again."""


@dataclass(frozen=True)
class VllmResidencyCounts(ResidencyCounts):
    """Of routing-residency."""

    states_demoted: int
    """As of routing-prefix, as is the next."""
    resumed: int
    moved_back: int
    """Times that a live trajectory was next to be evicted and was moved behind all others."""


COUNTS = {kind.FAMILY: kind for kind in (VllmPrefixCounts, VllmResidencyCounts)}
