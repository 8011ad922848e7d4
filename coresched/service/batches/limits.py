"""How much the service holds at most; a call beyond it is refused with RESOURCE_EXHAUSTED."""

from __future__ import annotations

from dataclasses import dataclass

SAMPLES_PER_CALL = 1_000
LONGEST_GRACE_S = 3600.0
REPORTED_SAMPLES = 1_000
SHORTEST_INTERVAL_S = 0.1
USUAL_INTERVAL_S = 1.0
LONGEST_INTERVAL_S = 3600.0


@dataclass(frozen=True, slots=True)
class Limits:
    """`open_batches` and `waiters`, calls that wait at once, are of each tenant, the others of each batch."""

    open_batches: int = 100
    waiters: int = 100_000
    sessions: int = 10_000
    samples: int = 1_000_000
