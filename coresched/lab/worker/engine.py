"""The worker against the wall clock: virtual time runs `speed` times as fast as the event loop's."""

import asyncio
from dataclasses import dataclass
from typing import Final

from coresched.lab.simulator.memory import SLOT_UNITS, Memory
from coresched.lab.simulator.model import WorkerModel
from coresched.lab.worker.batching import LiveWorker, WorkerSettings
from coresched.lab.worker.requests import LiveRequest

SHORTEST_TICK_S: Final = 0.005
"""Streams are told of new tokens at most this often, in wall-clock seconds; several may come at once."""


@dataclass
class Counters:
    """Sums over the requests that reached their first token, or their end. Times are virtual."""

    started: int = 0
    finished: int = 0
    aborted: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    first_token_s: float = 0.0
    duration_s: float = 0.0


@dataclass(frozen=True)
class Load:
    """The worker at one moment; pool use is the share of pages and slots held, by idle entries too."""

    running: int
    waiting: int
    cached_entries: int
    evictions: int
    kv_pool_use: float
    kv_pool_running: float
    """Share of the KV pool that the running requests will need at their ends."""
    state_pool_use: float


class LiveEngine:
    """Runs requests on one `LiveWorker` in an event loop; for one loop only."""

    def __init__(self, model: WorkerModel, memory: Memory, settings: WorkerSettings, *, speed: float) -> None:
        self.memory = memory
        self.speed = speed
        self.counters = Counters()
        self.worker = LiveWorker(
            settings, model, memory, wake_at=self._wake_at, started=self._started, finished=self._finished
        )
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._wake: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def now(self) -> float:
        """Virtual seconds since the worker began."""
        return (self._loop.time() - self._began) * self.speed

    def submit(self, request: LiveRequest) -> int:
        """Queue a request that fits the pools; its ``progress`` tells the rest. Returns its number."""
        t = self._advance()
        request.queued_at = t
        number = self.worker.submit(request, t)
        self._arm(t)
        return number

    def abort(self, number: int) -> None:
        """Free what a request without a client holds; nothing if it has ended."""
        t = self._advance()
        if number in self.worker.columns:
            self.counters.aborted += 1
            self.worker.abort(number, t)
        self._arm(t)

    def flush(self) -> bool:
        """Empty the cache; as in SGLang, only while no request is there, else nothing is done."""
        t = self._advance()
        idle = not self.worker.columns
        if idle:
            self.worker.pools.clear()
        self._arm(t)
        return idle

    def load(self) -> Load:
        t = self._advance()
        self._arm(t)
        worker, pools, memory = self.worker, self.worker.pools, self.memory
        waiting = len(worker.waiting.requests)
        return Load(
            running=len(worker.columns) - waiting,
            waiting=waiting,
            cached_entries=len(pools.idle),
            evictions=pools.evictions,
            kv_pool_use=pools.used_pages / memory.pages,
            kv_pool_running=pools.committed_pages / memory.pages,
            state_pool_use=pools.used_slot_units / memory.slot_units,
        )

    @property
    def state_slots(self) -> int:
        return self.memory.slot_units // SLOT_UNITS

    # --- time

    def _advance(self) -> float:
        """Let everything happen that is due, at its own virtual time; returns the present one."""
        t = self.now()
        while self._wake is not None and self._wake <= t:
            due, self._wake = self._wake, None
            self.worker.wake(due)
        for request, tokens in self.worker.produced(t):
            if request.streamed:
                request.report(tokens)
        return t

    def _wake_at(self, t: float) -> None:
        self._wake = t

    def _tick(self) -> None:
        self._arm(self._advance())

    def _arm(self, t: float) -> None:
        """Set the one timer to the next wake, or to the next tokens of a stream if those are earlier."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._wake is None:
            return
        when = self._began + self._wake / self.speed
        tokens_at = self.worker.next_tokens_at(t)
        if tokens_at is not None:
            earliest = self._loop.time() + SHORTEST_TICK_S
            when = min(when, max(self._began + tokens_at / self.speed, earliest))
        self._timer = self._loop.call_at(when, self._tick)

    # --- what the worker reports

    def _started(self, request: LiveRequest, t: float) -> None:
        request.first_token_at = t
        counters = self.counters
        counters.started += 1
        counters.input_tokens += len(request.prompt)
        counters.cached_tokens += request.cached_tokens
        counters.first_token_s += request.first_token_s
        request.report(1)

    def _finished(self, request: LiveRequest, t: float) -> None:
        request.finished_at = t
        self.counters.finished += 1
        self.counters.output_tokens += len(request.reply)
        self.counters.duration_s += request.duration_s
        request.report(len(request.reply))
