"""The entry of the trajectory that spends the largest part of its time in tools."""

from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Final

from coresched.lab.simulator.evictions.eviction import Cache, Eviction
from coresched.lab.simulator.workload import NO_KIND

WINDOW: Final = 5
"""Turns."""


class Mori(Eviction):
    """MORI's ranking, arXiv:2606.00866, of which there is no public code: the most idle goes first.

    Idleness = tool time / (tool + inference time) over the last turns, the stage under way included: a turn's
    inference is from its arrival to its end, its tool from there to the next arrival. A trajectory whose last
    reply called no tool is no longer active and goes before all others. Ties by LRU. Simplified: the window
    is 5 turns, as its size could not be found. Left out: its second tier in host memory, and with that the
    hysteresis of the boundary and the admission by tier.
    """

    def __init__(self, cache: Cache) -> None:
        self._tools = cache.tools
        self._stages: dict[int, deque[tuple[float, float]]] = {}  # inference and tool seconds of each turn
        self._queued_s: dict[int, float] = {}
        self._rested_s: dict[int, float] = {}
        self._ended: set[int] = set()

    def victim(self, idle: Sequence[int], now_s: float) -> int:
        return max(idle, key=lambda sample: self._idleness(sample, now_s))

    def queued(self, sample: int, now_s: float) -> None:
        self._queued_s[sample] = now_s
        self._ended.discard(sample)
        if sample in self._rested_s:
            inference_s, _ = self._stages[sample].pop()
            self._stages[sample].append((inference_s, now_s - self._rested_s.pop(sample)))

    def rested(self, sample: int, turn: int, tokens: int, now_s: float) -> None:
        stages = self._stages.setdefault(sample, deque(maxlen=WINDOW))
        stages.append((now_s - self._queued_s.pop(sample), 0.0))
        self._rested_s[sample] = now_s
        if self._tools[turn] == NO_KIND:
            self._ended.add(sample)

    def _idleness(self, sample: int, now_s: float) -> float:
        if sample in self._ended:
            return inf
        inference_s = now_s - self._queued_s.get(sample, now_s)
        tool_s = now_s - self._rested_s.get(sample, now_s)
        for inference, tool in self._stages[sample]:
            inference_s += inference
            tool_s += tool
        total_s = inference_s + tool_s
        return tool_s / total_s if total_s else 0.0
