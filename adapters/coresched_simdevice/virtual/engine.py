"""The real SGLang scheduler, driven from outside in virtual time."""

from __future__ import annotations

import heapq
import time
from array import array
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from math import inf, isfinite
from typing import Any

from coresched_engine.virtual.timeline import DeviceTimeline

from coresched.errors import InputError
from coresched_simdevice.timeline import install
from coresched_simdevice.virtual.boot import boot_scheduler
from coresched_simdevice.virtual.clock import VirtualClock
from coresched_simdevice.virtual.finished import Finished, Live
from coresched_simdevice.virtual.messages import generate_request
from coresched_simdevice.virtual.stepped import SteppedThread

# Passes without a batch after which a waiting queue is taken to be stuck: SGLang does something every 32nd.
STUCK_PASSES = 128


class StuckError(RuntimeError):
    """Requests wait, nothing runs, and the scheduler admits none of them."""


class VirtualEngine:
    """SGLang's Scheduler in this process: its own event loop, policy, batch builder and caches.

    The model's forward is the simulated device's, so CORESCHED_SIMDEVICE must be set. ``server_args`` are
    fields of SGLang's ServerArgs. One engine in a process.

    Time is virtual: it is 0 at first, moves to the end of a step when the loop waits for it, and to the next
    arrival when the loop is idle. What the scheduler computes takes no time, unless ``charge_scheduler``:
    then the CPU time that ordering the waiting queue really took passes too, and two runs differ.

    Time stands still unless `advance` runs. Several engines, each in a process of its own, can be kept in
    step: advance the one whose `next_event_s` is the least, up to the least of the others.
    """

    def __init__(self, server_args: Mapping[str, object], *, charge_scheduler: bool = False) -> None:
        self._clock = VirtualClock(self._pause)
        self._timeline = DeviceTimeline(self._clock)
        self.scheduler: Any = boot_scheduler(server_args, self._clock)
        """SGLang's Scheduler, to read from, and to wrap before the first `advance`."""
        install(self._timeline)
        self._charge_scheduler = charge_scheduler
        self._loop = SteppedThread(self.scheduler.run_event_loop)
        self._arrivals: list[tuple[float, int, Any]] = []
        self._sequence = count()
        self._live: dict[str, Live] = {}
        self._finished: list[Finished] = []
        self._answers: list[Any] = []
        self._stop: Callable[[], bool] = bool
        self._asleep = False
        self._idle_passes = self._steps_before_idle = 0
        self.priority_s = 0.0
        """CPU seconds of this process that the policy took to order the waiting queue."""
        self.batching_s = 0.0
        """CPU seconds that making prefill batches took, the ordering included."""
        self.scheduling_passes = 0
        """How often it was ordered."""
        self.prefilled_tokens = 0
        """Prompt tokens computed, those computed again after a retraction included."""
        self._attach()

    @property
    def now_s(self) -> float:
        """The virtual time, in seconds."""
        return self._clock.now()

    @property
    def next_event_s(self) -> float:
        """Nothing finishes before this time; inf while nothing is in flight."""
        if not self._live:
            return inf
        if not self._asleep:
            return max(self._clock.now(), self._clock.waits_for)
        return max(self._clock.now(), self._arrivals[0][0])

    @property
    def in_flight(self) -> int:
        """Requests submitted and not ended."""
        return len(self._live)

    @property
    def busy_s(self) -> float:
        """Virtual seconds of the forwards so far, on the device."""
        return self._timeline.busy_s

    @property
    def steps(self) -> int:
        """Forwards so far."""
        return self._timeline.steps

    @property
    def vocabulary_size(self) -> int:
        return int(self.scheduler.model_config.vocab_size)

    def require_room(self, name: str, prompt_tokens: int, output_tokens: int) -> None:
        """Raises InputError, about ``name``, where the context or the KV pool is too small for a request."""
        longest = self.scheduler.max_req_len - 1
        if prompt_tokens >= self.scheduler.max_req_input_len or prompt_tokens + output_tokens > longest:
            raise InputError(
                f"{name}: {prompt_tokens} prompt and {output_tokens} output tokens are more than the "
                f"{longest} that one request may have; raise context_length or the device's memory"
            )

    def submit(
        self,
        request_id: str,
        prompt: Iterable[int],
        output_tokens: int,
        label: str | None = None,
        at: float | None = None,
        *,
        reserve_output: bool = True,
    ) -> None:
        """Let a request arrive at virtual time ``at``, by default now. It generates ``output_tokens`` tokens.

        ``prompt`` are token ids below the model's vocabulary size, ``label`` is SGLang's routing key. With
        ``reserve_output`` SGLang is told that the reply has its full length (ignore_eos), reserves for it and
        never has to retract the request; else it estimates how much of that will come. Raises
        InputError for an id in flight, an empty prompt, no output, or a time that has passed.
        """
        tokens = prompt if isinstance(prompt, array) and prompt.typecode == "q" else array("q", prompt)
        if request_id in self._live:
            raise InputError(f"request_id {request_id!r} is in flight; give each request its own")
        if not request_id or not tokens:
            raise InputError(
                f"request {request_id!r} has {len(tokens)} prompt tokens; give an id and a prompt"
            )
        if output_tokens < 1:
            raise InputError(
                f"request {request_id!r}: output_tokens is {output_tokens}; it must be at least 1"
            )
        self.require_room(f"request {request_id!r}", len(tokens), output_tokens)
        at = self._moment(at)
        self._push(at, generate_request(request_id, tokens, output_tokens, label, reserve_output))
        self._live[request_id] = Live(request_id, label, at, len(tokens))

    def abort(self, request_id: str, at: float | None = None) -> None:
        """Let SGLang's abort of a request arrive at ``at``, by default now.

        The request ends as `Finished` with ``aborted`` set, unless it was done before. Raises InputError
        where the id is not in flight, or begins another in flight, which SGLang would abort too.
        """
        from sglang.srt.managers.io_struct import AbortReq

        if request_id not in self._live:
            raise InputError(
                f"request_id {request_id!r} is not in flight; only such a request can be aborted"
            )
        for other in self._live:
            if other != request_id and other.startswith(request_id):
                raise InputError(
                    f"request_id {request_id!r} begins {other!r}, which SGLang would abort too; "
                    "give ids of which none begins another"
                )
        self._push(self._moment(at), AbortReq(rid=request_id))

    def flush_cache(self) -> bool:
        """Ask SGLang to empty its caches; time moves to its next scheduling pass.

        Returns its answer: False while requests wait or run.
        """
        from sglang.srt.managers.io_struct import FlushCacheReqInput

        self._answers.clear()
        self._push(self._clock.now(), FlushCacheReqInput())
        self._run(inf, lambda: bool(self._answers))
        return bool(self._answers[0].success)

    def advance(self, until: float = inf, *, stop_at_finish: bool = False) -> list[Finished]:
        """Let virtual time pass to ``until``; returns the requests that have finished, in that order.

        With ``stop_at_finish`` stops as soon as some have, all of one step at a time. Without an ``until``
        stops when all that was submitted has ended. Raises InputError for an ``until`` that has passed, and
        `StuckError` where the scheduler admits nothing any more.
        """
        if until < self._clock.now():
            raise InputError(f"until is {until}, before the present {self._clock.now()} s; time only goes on")
        if not (stop_at_finish and self._finished):
            self._run(until, (lambda: bool(self._finished)) if stop_at_finish else bool)
        finished, self._finished = self._finished, []
        return finished

    def close(self) -> None:
        """End the event loop. Requests in flight are dropped."""
        if not self._loop.ended:
            self.scheduler.gracefully_exit = True
            self._run(inf, bool)

    def _run(self, until: float, stop: Callable[[], bool]) -> None:
        self._clock.limit, self._stop = until, stop
        self._loop.resume()

    def _moment(self, at: float | None) -> float:
        if at is None:
            return self._clock.now()
        if not (isfinite(at) and at >= self._clock.now()):
            raise InputError(f"at is {at}; it must be {self._clock.now()} s, the present, or later")
        return at

    def _push(self, at: float, message: Any) -> None:
        heapq.heappush(self._arrivals, (at, next(self._sequence), message))

    # --- in the scheduler's thread

    def _pause(self) -> None:
        self._loop.pause()

    def _attach(self) -> None:
        """Put this engine where the scheduler's sockets and its idle wait are, and time its policy."""
        scheduler = self.scheduler
        scheduler.request_receiver = self
        scheduler.ipc_channels.send_to_detokenizer.send_output = self._output
        scheduler.ipc_channels.send_to_tokenizer.send_output = self._control_output
        self._on_idle, scheduler.on_idle = scheduler.on_idle, self._idle
        policy = scheduler.policy
        self._calc_priority, policy.calc_priority = policy.calc_priority, self._timed_priority
        self._new_batch, scheduler.get_new_batch_prefill = scheduler.get_new_batch_prefill, self._timed_batch
        self._run_batch, scheduler.run_batch = scheduler.run_batch, self._counted_batch

    def recv_requests(self, local_reqs: list[Any] | None = None) -> list[Any]:
        """What has arrived, for the scheduler, which asks between two steps."""
        if self._stop():
            self._clock.waits_for = 0.0
            self._pause()
        received = list(local_reqs or ())
        while self._arrivals and self._arrivals[0][0] <= self._clock.now():
            received.append(heapq.heappop(self._arrivals)[2])
        if received:
            self._idle_passes = 0
        return received

    def _idle(self) -> None:
        """The scheduler has no batch to run. Its own idle checks are made; then time moves to an arrival."""
        scheduler = self.scheduler
        self._on_idle()
        if self.steps > self._steps_before_idle:
            self._idle_passes, self._steps_before_idle = 0, self.steps
        if scheduler.waiting_queue:
            self._idle_passes += 1
            if self._idle_passes <= STUCK_PASSES:
                return
            if not self._arrivals:
                raise StuckError(
                    f"{len(scheduler.waiting_queue)} requests wait, none runs and none can be admitted; "
                    f"the first is {scheduler.waiting_queue[0].rid!r} with "
                    f"{len(scheduler.waiting_queue[0].origin_input_ids)} prompt tokens"
                )
        self._asleep = True
        self._clock.wait_for(self._next_arrival)
        self._asleep = False

    def _next_arrival(self) -> float:
        if self.scheduler.gracefully_exit or self._stop():
            return self._clock.now()
        return self._arrivals[0][0] if self._arrivals else inf

    def _timed_priority(self, *args: Any, **kwargs: Any) -> Any:
        before = time.thread_time()
        result = self._calc_priority(*args, **kwargs)
        seconds = time.thread_time() - before
        self.priority_s += seconds
        self.scheduling_passes += 1
        if self._charge_scheduler:
            self._clock.wait_until(self._clock.now() + seconds)
        return result

    def _timed_batch(self, *args: Any, **kwargs: Any) -> Any:
        before = time.thread_time()
        plan = self._new_batch(*args, **kwargs)
        self.batching_s += time.thread_time() - before
        return plan

    def _counted_batch(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        if batch.forward_mode.is_extend():
            self.prefilled_tokens += batch.extend_num_tokens - len(batch.decoding_reqs or ())
        return self._run_batch(batch, *args, **kwargs)

    def _output(self, output: Any, *_: Any) -> None:
        """What the scheduler streams to the detokenizer: generated tokens, and ends of requests."""
        from sglang.srt.managers.io_struct import unwrap_from_pickle

        stamps = None
        for row, request_id in enumerate(output.rids):
            live = self._live[request_id]
            if output.output_ids is not None:
                live.output_ids.extend(output.output_ids[row])
            if output.finished_reasons[row] is not None:
                stamps = stamps or unwrap_from_pickle(output.time_stats)
                del self._live[request_id]
                self._finished.append(live.finished(output, row, stamps[row], self._clock.now()))

    def _control_output(self, output: Any, *_: Any) -> None:
        """Answers to other messages: an abort that took a request out of the queue, and a flush."""
        from sglang.srt.managers.io_struct import AbortReq

        if not isinstance(output, AbortReq):
            self._answers.append(output)
        elif (live := self._live.pop(output.rid, None)) is not None:
            self._finished.append(live.aborted_in_queue(output.finished_reason, self._clock.now()))
