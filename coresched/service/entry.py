"""What the routing table tells of a worker, and of how evenly requests lie on all of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Standing(Enum):
    """Where a worker stands."""

    ROUTABLE = "on the ring"
    DRAINING = "off the ring, and kept also without requests in flight"
    REMOVED = "off the ring, and forgotten with its last request in flight"


class Imbalance(NamedTuple):
    """`present` is d, None with fewer than two requests in flight; `over_s` its integral, `busy_s` |J|."""

    present: float | None
    over_s: float
    busy_s: float


@dataclass(slots=True)
class WorkerEntry:
    """One worker; `in_flight` is L(w) in requests.

    `routed` counts the requests it was given, `spilled` those that had it as home and went to another.
    """

    weight: float
    in_flight: int = 0
    standing: Standing = Standing.ROUTABLE
    routed: int = 0
    spilled: int = 0

    @property
    def routable(self) -> bool:
        return self.standing is Standing.ROUTABLE
