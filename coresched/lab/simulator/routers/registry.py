"""The routers of this folder by name."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from coresched.lab.simulator.model import StepTimes
from coresched.lab.simulator.routers.autellix_locality import AutellixLocality
from coresched.lab.simulator.routers.bounded_ring import BoundedRing
from coresched.lab.simulator.routers.dualmap import DualMap
from coresched.lab.simulator.routers.least_loaded import LeastLoaded
from coresched.lab.simulator.routers.power_of_two import PowerOfTwo
from coresched.lab.simulator.routers.preble import Preble
from coresched.lab.simulator.routers.prefix_hash import PrefixHash, StrictPrefixHash
from coresched.lab.simulator.routers.router import Fleet, Router
from coresched.lab.simulator.routers.sticky_bounded import StickyBounded
from coresched.lab.simulator.routers.sticky_least_loaded import StickyLeastLoaded
from coresched.lab.simulator.routers.sticky_table import StickyTable
from coresched.lab.simulator.settings import RunSettings

PLAIN_ROUTERS: Final[Mapping[str, Callable[[Fleet], Router]]] = {
    "power-of-two": PowerOfTwo,
    "least-loaded": LeastLoaded,
    "prefix-hash": PrefixHash,
    "prefix-hash-strict": StrictPrefixHash,
    "bounded-ring": BoundedRing,
    "sticky-least-loaded": StickyLeastLoaded,
    "sticky-table": StickyTable,
    "dualmap": DualMap,
    "preble": Preble,
    "autellix-locality": AutellixLocality,
    "sticky-bounded": StickyBounded,
}

ROUTERS_BY_FIRST_TOKENS: Final = ("dualmap", "preble")
"""These decide by when first tokens came, which workers of lockstep runs tell at the end of a turn only."""


def plain_router(labels: Sequence[str], settings: RunSettings, times: StepTimes) -> Router | None:
    """The router of a run; None for those that have a twin."""
    router = PLAIN_ROUTERS.get(settings.routing)
    if router is None:
        return None
    return router(Fleet(labels, settings.workers, settings.load_bound, settings.seed, times))
