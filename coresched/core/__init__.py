"""The scheduling core: compiled, without I/O and without a clock of its own."""

from coresched.core.attached import AttachedOrder
from coresched.core.chain import ChainAdvancingQueue
from coresched.core.gaps import TurnGaps
from coresched.core.prefix import RoutingPrefixPolicy, Waiting
from coresched.core.residency import ResidencyPolicy
from coresched.core.ring import LoadBoundedRouter

__all__ = [
    "AttachedOrder",
    "ChainAdvancingQueue",
    "LoadBoundedRouter",
    "ResidencyPolicy",
    "RoutingPrefixPolicy",
    "TurnGaps",
    "Waiting",
]
