"""The scheduling core: without I/O and without a clock of its own, and compiled but for one router."""

from coresched.core.attached import AttachedOrder
from coresched.core.chain import ChainAdvancingQueue
from coresched.core.gaps import TurnGaps
from coresched.core.prefix import RoutingPrefixPolicy, Waiting
from coresched.core.residency import ResidencyPolicy
from coresched.core.ring import LoadBoundedRouter
from coresched.core.sticky import StickyBoundedRouter

__all__ = [
    "AttachedOrder",
    "ChainAdvancingQueue",
    "LoadBoundedRouter",
    "ResidencyPolicy",
    "RoutingPrefixPolicy",
    "StickyBoundedRouter",
    "TurnGaps",
    "Waiting",
]
