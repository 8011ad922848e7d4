"""The entry whose next use is predicted to be farthest, by what its tool has taken before."""

from bisect import insort
from collections.abc import Sequence
from math import inf

from coresched.lab.simulator.evictions.eviction import Cache, Eviction
from coresched.lab.simulator.workload import NO_KIND


class Saga(Eviction):
    """SAGA's retention, arXiv:2605.00528, of which there is no code by its authors.

    Next use = end of the turn + the median time from a turn that called the same tool to the next turn, as
    this worker has seen it; of all tools while this one is new, and 0 while all are. A reply that calls no
    tool is its session's last. Evicts the farthest; ties by LRU. Simplified: its graph of calls is a chain
    here, so the next call is sure unless no tool was called. Left out: its weights of recency and of reuse,
    whose values could not be found; expiry, as an entry that nothing needs to replace may stay; session
    affinity, which routers do; fairness.
    """

    def __init__(self, cache: Cache) -> None:
        self._tools = cache.tools
        self._gaps_s: dict[int, list[float]] = {}  # by tool, ascending
        self._all_gaps_s: list[float] = []
        self._rested: dict[int, tuple[int, float]] = {}  # tool and time
        self._next_use_s: dict[int, float] = {}

    def victim(self, idle: Sequence[int], now_s: float) -> int:
        return max(idle, key=self._next_use_s.__getitem__)

    def queued(self, sample: int, now_s: float) -> None:
        if sample in self._rested:
            tool, rested_s = self._rested.pop(sample)
            insort(self._gaps_s.setdefault(tool, []), now_s - rested_s)
            insort(self._all_gaps_s, now_s - rested_s)

    def rested(self, sample: int, turn: int, tokens: int, now_s: float) -> None:
        tool = self._tools[turn]
        self._rested[sample] = tool, now_s
        gaps_s = self._gaps_s.get(tool) or self._all_gaps_s
        gap_s = gaps_s[len(gaps_s) // 2] if gaps_s else 0.0
        self._next_use_s[sample] = inf if tool == NO_KIND else now_s + gap_s
