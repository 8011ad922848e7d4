"""The entry that has served fewest turns, or any that has served one, before the others."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from coresched.lab.simulator.evictions.eviction import Cache, Eviction

PROTECTED_TURNS: Final = 2


class LeastFrequent(Eviction):
    """SGLang's --radix-eviction-policy lfu (0.5.23, mem_cache/evict_policy.py): fewest hits, then LRU.

    Hits are the turns that the entry has served since it was last computed anew. Simplified: SGLang counts
    them for each node of its prefix tree, and the node that holds a trajectory's state is new after each
    turn; here they are the trajectory's. Left out of its other policies: priority, as no request has one, and
    tlru, which trims the ends of entries that are usable only whole.
    """

    def __init__(self, cache: Cache) -> None:
        self._turns: Counter[int] = Counter()

    def victim(self, idle: Sequence[int], now_s: float) -> int:
        sample = min(idle, key=self._rank)
        del self._turns[sample]
        return sample

    def rested(self, sample: int, turn: int, tokens: int, now_s: float) -> None:
        self._turns[sample] += 1

    def _rank(self, sample: int) -> int:
        return self._turns[sample]


class SegmentedRecency(LeastFrequent):
    """The same's slru: entries of fewer than 2 hits first, by LRU, then the others, by LRU."""

    def _rank(self, sample: int) -> int:
        return self._turns[sample] >= PROTECTED_TURNS
