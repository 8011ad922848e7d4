"""The entry with the fewest tokens."""

from collections.abc import Sequence

from coresched.lab.simulator.evictions.eviction import Cache, Eviction


class SmallestContext(Eviction):
    """What is soonest computed again goes first; ties by LRU.

    What Marconi's rule comes to, with one state a trajectory, if its alpha outweighs recency.
    """

    def __init__(self, cache: Cache) -> None:
        self._tokens: dict[int, int] = {}

    def victim(self, idle: Sequence[int], now_s: float) -> int:
        return min(idle, key=self._tokens.__getitem__)

    def rested(self, sample: int, turn: int, tokens: int, now_s: float) -> None:
        self._tokens[sample] = tokens
