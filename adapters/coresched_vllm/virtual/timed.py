"""vLLM's engine core in virtual time, driven from outside. Only vLLM can load this module."""

from __future__ import annotations

import heapq
from array import array
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Any

from vllm import SamplingParams
from vllm.v1.engine.core import EngineCore
from vllm.v1.request import Request

from coresched_vllm.virtual.executor import SimulatedExecutor

STUCK_PASSES = 128
"""Passes that schedule nothing, after which a waiting queue is taken to be stuck."""


class StuckError(RuntimeError):
    """Requests wait, nothing runs, and the scheduler admits none of them."""


@dataclass(frozen=True, slots=True)
class TimedRequest:
    """One request from its submission to its end. Times are virtual seconds."""

    request_id: str
    first_token_s: float | None
    finished_s: float
    cached_tokens: int
    """Prompt tokens found in the cache when it was first admitted, by vLLM's own statistics."""
    queue_s: float
    """Time in the waiting queue, after preemptions too."""
    retractions: int
    """How often it was preempted."""
    output_ids: array[int]
    aborted: str | None
    """Why vLLM ended it otherwise than by its length, else None."""


@dataclass(slots=True)
class _Live:
    output_ids: array[int]
    first_token_s: float | None = None
    cached_tokens: int = 0


class TimedEngine:
    """vLLM's EngineCore in this process: its own loop body, scheduler and block pool, on a simulated device.

    ``vllm_config`` must have been made with `SimulatedExecutor` and the simulated platform. One engine in a
    process.

    Time is virtual: it is 0 at first, moves to the end of a step when vLLM waits for the step's result, and
    to the next arrival when it is idle. What vLLM computes takes no time. It stands still unless `advance`
    runs.
    """

    def __init__(self, vllm_config: Any) -> None:
        self.core = EngineCore(vllm_config, SimulatedExecutor, log_stats=True)
        executor: SimulatedExecutor = self.core.model_executor
        self._clock, self._rows, self._timeline = executor.clock, executor.rows, executor.timeline
        self._hasher = self.core.request_block_hasher
        self._arrivals: list[tuple[float, int, Request]] = []
        self._sequence = count()
        self._live: dict[str, _Live] = {}
        self._finished: list[TimedRequest] = []
        """What has ended at the present, where that is beyond what `advance` was allowed."""
        self._empty_passes = 0

    @property
    def now_s(self) -> float:
        return self._clock.now()

    @property
    def next_event_s(self) -> float:
        """Nothing finishes before this time; inf while nothing is in flight."""
        if not self._finished and not self._busy():
            return self._arrivals[0][0] if self._arrivals else inf
        return self._clock.now()

    @property
    def busy_s(self) -> float:
        """Virtual seconds of the steps so far, on the device."""
        return self._timeline.busy_s

    @property
    def prefilled_tokens(self) -> int:
        """Prompt tokens computed, and all that were computed again after preemptions."""
        return self._rows.prefilled_tokens

    def submit(
        self, request_id: str, prompt: array[int], output_tokens: int, label: str | None, at: float
    ) -> None:
        """Let a request arrive at virtual time ``at``, not before the present.

        ``prompt`` are token ids, ``output_tokens`` is how many it generates, ``label`` is its ``session_id``.
        """
        sampling = SamplingParams(max_tokens=output_tokens, ignore_eos=True, temperature=0.0)
        request = Request(
            request_id,
            prompt.tolist(),
            sampling,
            None,
            arrival_time=at,
            block_hasher=self._hasher,
            session_id=label,
        )
        heapq.heappush(self._arrivals, (at, next(self._sequence), request))

    def advance(self, until: float = inf) -> list[TimedRequest]:
        """Let virtual time pass to ``until``; returns the requests that have ended, in that order.

        Without an ``until`` stops when all that was submitted has ended. Raises `StuckError` where the
        scheduler admits nothing any more.
        """
        ended: list[TimedRequest] = []
        while self._clock.now() <= until:
            ended += self._finished
            self._finished = []
            self._deliver()
            if self._busy():
                self._step()
            elif self._arrivals and self._arrivals[0][0] <= until:
                self._clock.wait_until(self._arrivals[0][0])
            else:
                if until < inf:
                    self._clock.wait_until(until)
                break
        return ended

    def close(self) -> None:
        """Nothing is left to be ended: the engine has no process and no file of its own."""

    def _busy(self) -> bool:
        return bool(self.core.scheduler.has_requests() or self.core.batch_queue)

    def _deliver(self) -> None:
        """What has arrived joins the waiting queue, between two steps, as in vLLM's own loop."""
        while self._arrivals and self._arrivals[0][0] <= self._clock.now():
            _, _, request = heapq.heappop(self._arrivals)
            self._live[request.request_id] = _Live(array("q"))
            self._rows.queued(request.request_id, request.num_prompt_tokens, self._clock.now())
            self.core.add_request(request)

    def _step(self) -> None:
        outputs, executed = self.core.step_fn()
        self.core.post_step(executed)
        for each in outputs.values() if outputs else ():
            for output in each.outputs:
                self._take(output)
        self._empty_passes = 0 if executed or not self._live else self._empty_passes + 1
        if self._empty_passes > STUCK_PASSES:
            waiting = list(self.core.scheduler.waiting)
            raise StuckError(f"{len(waiting)} requests wait, none runs and none can be admitted")

    def _take(self, output: Any) -> None:
        live = self._live[output.request_id]
        if output.new_token_ids and live.first_token_s is None:
            live.first_token_s = self._clock.now()
        live.output_ids.extend(output.new_token_ids)
        if output.prefill_stats is not None:  # with a request's first output
            live.cached_tokens = output.prefill_stats.num_cached_tokens
        if output.finish_reason is None:
            return
        del self._live[output.request_id]
        row, reason = self._rows.ended(output.request_id), str(output.finish_reason)
        self._finished.append(
            TimedRequest(
                request_id=output.request_id,
                first_token_s=live.first_token_s,
                finished_s=self._clock.now(),
                cached_tokens=live.cached_tokens,
                queue_s=row.waited_s,
                retractions=row.preemptions,
                output_ids=live.output_ids,
                aborted=None if reason == "length" else reason,
            )
        )
