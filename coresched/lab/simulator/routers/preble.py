"""To where most of the prompt is, and with a mostly new prompt to the worker with the least work."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Final

from coresched.lab.simulator.routers.router import Fleet, Router

WINDOW_S: Final = 180.0


@dataclass
class _Recent:
    """The turns of one trajectory in the window."""

    turns: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0


class Preble(Router):
    """Preble, arXiv:2407.00023; WukLab/preble, multi_node/global_scheduler_with_time.py.

    Exploit: a prompt of which more was sent before than is new goes where that was. Explore: any other to the
    worker with the least work, which is the sum over the trajectories placed there that had turns in the last
    3 minutes of (share of new prompt tokens * turns * prefill time of the first prompt), and its requests in
    flight times the mean time from first token to end. Simplified: a node of its prefix tree is a
    trajectory, so shared beginnings are not seen; what was sent counts as cached; output tokens times time
    each is measured as one. Left out, as they are off in that file: the cost of evictions, rebalancing.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._worker_of: dict[int, int] = {}
        self._first_prompt: dict[int, int] = {}
        self._last_prompt: dict[int, int] = {}
        self._window: deque[tuple[float, int, int, int]] = deque()
        self._recent: dict[int, _Recent] = {}
        self._missed_s: list[dict[int, float]] = [{} for _ in range(fleet.workers)]  # by sample
        self._started_s: dict[int, float] = {}
        self._decoded_s = 0.0
        self._decoded = 0

    def place(self, sample: int, prompt_tokens: int, in_flight: Sequence[int], now_s: float) -> int:
        self._forget(now_s - WINDOW_S)
        sent = self._last_prompt.get(sample, 0)
        new = prompt_tokens - sent
        if new >= sent:
            if sample in self._worker_of:
                self._missed_s[self._worker_of[sample]].pop(sample, None)
            work = self._work_s(in_flight)
            self._worker_of[sample] = work.index(min(work))
        self._first_prompt.setdefault(sample, prompt_tokens)
        self._last_prompt[sample] = prompt_tokens
        self._window.append((now_s, sample, prompt_tokens, new))
        self._count(sample, 1, prompt_tokens, new)
        return self._worker_of[sample]

    def started(self, sample: int, worker: int, now_s: float) -> None:
        self._started_s[sample] = now_s

    def ended(self, sample: int, worker: int, now_s: float) -> None:
        self._decoded_s += now_s - self._started_s.pop(sample)
        self._decoded += 1

    def _work_s(self, in_flight: Sequence[int]) -> list[float]:
        decode_s = self._decoded_s / self._decoded if self._decoded else 0.0
        return [
            load * decode_s + fsum(missed_s.values())
            for load, missed_s in zip(in_flight, self._missed_s, strict=True)
        ]

    def _forget(self, before_s: float) -> None:
        while self._window and self._window[0][0] < before_s:
            _, sample, prompt_tokens, new_tokens = self._window.popleft()
            self._count(sample, -1, -prompt_tokens, -new_tokens)

    def _count(self, sample: int, turns: int, prompt_tokens: int, new_tokens: int) -> None:
        recent = self._recent.setdefault(sample, _Recent())
        recent.turns += turns
        recent.prompt_tokens += prompt_tokens
        recent.new_tokens += new_tokens
        missed_s = self._missed_s[self._worker_of[sample]]
        if not recent.turns:
            del self._recent[sample]
            missed_s.pop(sample, None)
            return
        first = self._first_prompt[sample]
        missed = recent.new_tokens / recent.prompt_tokens * recent.turns
        missed_s[sample] = missed * self._fleet.prefill_s(first, first)
