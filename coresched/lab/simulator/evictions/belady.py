"""The entry whose next use is farthest, read from the trace: an oracle."""

from collections.abc import Sequence
from math import inf

from coresched.lab.simulator.evictions.eviction import Cache, Eviction


class Belady(Eviction):
    """Belady 1966: no worker can know this. It is a limit for the others, not a rival.

    Next use is the arrival of the next turn: with fcfs that is the order of admission too. Approximate where
    environment stages wait for a slot, whose wait is taken as 0 until the turn arrives, and no optimum for
    entries of different sizes.
    """

    def __init__(self, cache: Cache) -> None:
        self._workload = cache.workload
        self._times = cache.times
        self._next_use_s: dict[int, float] = {}

    def victim(self, idle: Sequence[int], now_s: float) -> int:
        return max(idle, key=self._next_use_s.__getitem__)

    def queued(self, sample: int, now_s: float) -> None:
        self._next_use_s[sample] = now_s

    def rested(self, sample: int, turn: int, tokens: int, now_s: float) -> None:
        following = turn + 1
        if following == self._workload.first_turn[sample + 1]:
            self._next_use_s[sample] = inf
            return
        turnaround_s = (
            self._times.turnaround_s
            + self._times.turnaround_token_s * self._workload.prompt_tokens[following]
        )
        self._next_use_s[sample] = now_s + max(0.0, self._workload.environment_s[turn]) + turnaround_s
