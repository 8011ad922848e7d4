"""A real engine in this process, whose clock is the CPU time that its steps take."""

import heapq
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from time import process_time
from typing import Any, Final

from bench.vllm_policies.model_engine import ModelEngine

cpu_s: Final = process_time


@dataclass(frozen=True)
class Ended:
    """`coresched_engine.fleet.engine_process.FinishedRequest`."""

    request_id: str
    first_token_s: float
    finished_s: float
    output_ids: "array[int]"
    cached_tokens: int
    queue_s: float = 0.0  # vLLM does not tell it on this clock
    retractions: int = 0
    aborted: str | None = None


class RealEngine:
    """A `SteppedEngine` around a model that computes. What a step ends is known when its CPU time has passed.

    While nothing is in flight the clock goes to the next arrival at once.
    """

    def __init__(self, model: ModelEngine) -> None:
        self._model = model
        self._now = 0.0
        self._arrivals: list[tuple[float, int, str, Sequence[int], int]] = []
        self._order = count()
        self._running: set[str] = set()
        self._first_token_s: dict[str, float] = {}
        self._ended: deque[Ended] = deque()
        self.busy_s = 0.0
        self.prefilled_tokens = 0
        self.decode_step_s: list[float] = []
        """Of each step without prompts; below, of each with some."""
        self.prompt_step_s: list[float] = []

    @property
    def next_event_s(self) -> float:
        if self._ended:
            return self._ended[0].finished_s
        if self._running:
            return self._now
        return max(self._now, self._arrivals[0][0]) if self._arrivals else inf

    def submit(
        self, request_id: str, prompt: "array[int]", output_tokens: int, label: str, at: float
    ) -> None:
        heapq.heappush(self._arrivals, (at, next(self._order), request_id, prompt, output_tokens))

    def advance(self, until: float) -> Sequence[Ended]:
        """Steps until ``until``, which the last one may pass; what it ends is then told later."""
        while self._now <= until:
            if not self._running:
                if not self._arrivals or self._arrivals[0][0] > until:
                    break
                self._now = max(self._now, self._arrivals[0][0])
            self._step()
        told = []
        while self._ended and self._ended[0].finished_s <= until:
            told.append(self._ended.popleft())
        return told

    def close(self) -> None:
        pass

    def _step(self) -> None:
        arrived = []
        while self._arrivals and self._arrivals[0][0] <= self._now:
            _, _, request_id, prompt, output_tokens = heapq.heappop(self._arrivals)
            self._model.submit(request_id, prompt, output_tokens)
            arrived.append(request_id)
        self._running.update(arrived)
        began = cpu_s()
        finished: list[Any] = self._model.step()
        taken = cpu_s() - began
        self._now += taken
        self.busy_s += taken
        (self.prompt_step_s if arrived else self.decode_step_s).append(taken)
        self._first_token_s.update(dict.fromkeys(arrived, self._now))
        for each in finished:
            self._running.remove(each.request_id)
            self.prefilled_tokens += each.prompt_tokens - each.cached_tokens
            self._ended.append(
                Ended(
                    each.request_id,
                    self._first_token_s.pop(each.request_id),
                    self._now,
                    array("q", each.tokens[each.prompt_tokens :]),
                    each.cached_tokens,
                )
            )
