"""The entry that is worth least: long unused, and little computation spared for the memory it takes."""

from collections.abc import Sequence
from typing import Final

from coresched.lab.simulator.evictions.eviction import Cache, Eviction

ALPHA: Final = 1.0


class Marconi(Eviction):
    """Marconi, arXiv:2411.19379; ruipeterpan/marconi, radix_cache_hybrid.py, evict_v2.

    Evicts the smallest S = recency + alpha * efficiency, each scaled to [0, 1] over the idle entries,
    anew for each eviction (1 where all are the same). Recency is 1 / (now - last use) on a clock that
    ticks with each use of the cache, efficiency the FLOPs a hit spares over the bytes of KV and state: it
    grows with the context. Simplified: FLOPs are the worker's prefill time, bytes are counted in KV
    tokens, and alpha is 1, the middle of the grid 0, 0.1, ... 2 in which the original searches once, over
    a replayed window. Its admission of states at branches has no counterpart, as an entry is one state at
    the end of a trajectory.
    """

    def __init__(self, cache: Cache, alpha: float = ALPHA) -> None:
        self._cache = cache
        self._alpha = alpha
        self._ticks = 0
        self._last_use: dict[int, int] = {}
        self._efficiency: dict[int, float] = {}

    def victim(self, idle: Sequence[int], now_s: float) -> int:
        self._ticks += 1
        recency = _scaled([1 / (self._ticks - self._last_use[sample]) for sample in idle])
        efficiency = _scaled([self._efficiency[sample] for sample in idle])
        worth = [r + self._alpha * e for r, e in zip(recency, efficiency, strict=True)]
        return idle[worth.index(min(worth))]

    def touched(self, sample: int, now_s: float) -> None:
        self._use(sample)

    def rested(self, sample: int, turn: int, tokens: int, now_s: float) -> None:
        self._use(sample)
        self._efficiency[sample] = self._cache.prefill_s(tokens) / (tokens + self._cache.slot_tokens)

    def _use(self, sample: int) -> None:
        self._ticks += 1
        self._last_use[sample] = self._ticks


def _scaled(values: list[float]) -> list[float]:
    lowest, highest = min(values), max(values)
    if lowest == highest:
        return [1.0] * len(values)
    return [(value - lowest) / (highest - lowest) for value in values]
