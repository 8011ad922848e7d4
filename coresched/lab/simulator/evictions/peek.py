"""An entry that no waiting request would use, before those that one would."""

from collections.abc import Sequence

from coresched.lab.simulator.evictions.eviction import Cache, Eviction


class Peek(Eviction):
    """PEEK's eviction: entries with no pending reference first, by LRU, then the others, by LRU.

    From the sentence that arXiv:2611.16661 gives it; PEEK itself could not be found. Simplified: an entry
    serves one trajectory, so it has one pending reference at most.
    """

    def __init__(self, cache: Cache) -> None:
        self._pending: set[int] = set()

    def victim(self, idle: Sequence[int], now_s: float) -> int:
        return min(idle, key=self._pending.__contains__)

    def queued(self, sample: int, now_s: float) -> None:
        self._pending.add(sample)

    def started(self, sample: int, now_s: float) -> None:
        self._pending.remove(sample)
