"""The workers of a gateway: who is in, who is out at present, and what this gateway has in flight on each."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import ClassVar, NamedTuple

from coresched.core.imbalance import RequestImbalance
from coresched.gateway.workers import Worker
from coresched.metrics.histogram import DECISION_S, Histogram


class NoWorkerError(LookupError):
    """There is no healthy worker that could take the request."""


class RouterAwayError(Exception):
    """Whoever chooses the worker does not answer; nothing was executed."""


class Imbalance(NamedTuple):
    """Request imbalance d of the healthy workers: now (None with fewer than two requests), its integral over
    the time with more than one request in flight, and that time, in seconds."""

    present: float | None
    over_s: float
    busy_s: float


class Placed(NamedTuple):
    """A request in flight on a worker, until `end` is called, exactly once."""

    worker: Worker
    end: Callable[[], None]


class Members(ABC):
    """The workers, and which of them are out; a subclass chooses among them. For one event loop."""

    knows_homes: ClassVar[bool]
    """Whether it can tell that a request went elsewhere than home."""

    on_route: Callable[[str, str], None] | None = None
    """Called with the label and the worker's name for each request routed."""

    def __init__(
        self,
        workers: Sequence[Worker],
        *,
        failures_to_out: int = 3,
        notify: Callable[[Worker, str], None] = lambda worker, line: None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """`notify` is called with a worker that goes out or comes back, and a line about it.

        `clock` is monotonic, in seconds, and measures only: nothing is decided by it.
        """
        self.workers = tuple(workers)
        self._failures_to_out = failures_to_out
        self._notify = notify
        self._clock = clock
        self._imbalance = RequestImbalance([0] * len(self.workers), clock())
        self.decision_s = Histogram(DECISION_S)
        """What each route took, its checks included."""
        self._out: tuple[str, ...] = ()

    @abstractmethod
    async def place(self, label: str, failed: Sequence[Worker] = ()) -> Placed:
        """The worker for a request of this label, in flight there until the end.

        `failed`: workers that this request could not reach. Raises NoWorkerError, RouterAwayError, and
        ValueError for a label that cannot be one.
        """

    async def changed(self) -> None:
        """Returns once `workers` may be others than before; these never are."""
        await asyncio.Event().wait()

    def _excluded(self, failed: Sequence[Worker]) -> tuple[str, ...]:
        """Names not to be chosen. Raises NoWorkerError if that leaves none."""
        exclude = self._out
        if failed:
            exclude = tuple({*exclude, *(worker.name for worker in failed)})
        if len(exclude) >= len(self.workers):
            raise NoWorkerError
        return exclude

    def _began(self, label: str, worker: Worker, began: float, failed: Sequence[Worker]) -> None:
        """A request was routed to the worker; the choice of it began then."""
        now = self._clock()
        self.decision_s.observe(now - began)
        if worker.healthy:
            self._imbalance.began(worker.in_flight, now)
        worker.in_flight += 1
        worker.requests += 1
        if failed:
            worker.retries += 1
        if self.on_route is not None:
            self.on_route(label, worker.name)

    def _ended(self, worker: Worker) -> None:
        if worker.healthy:
            self._imbalance.ended(worker.in_flight, self._clock())
        worker.in_flight -= 1

    def first(self, failed: Sequence[Worker] = ()) -> Worker:
        """The first healthy worker, for what is no inference request, uncounted. Raises NoWorkerError."""
        for worker in self.workers:
            if worker.healthy and worker not in failed:
                return worker
        raise NoWorkerError

    def imbalance(self) -> Imbalance:
        """How unevenly the requests in flight lie, and lay, on the healthy workers."""
        over_s, busy_s = self._imbalance.integrals(self._clock())
        return Imbalance(self._imbalance.present, over_s, busy_s)

    def healthy(self) -> int:
        """How many workers are healthy."""
        return len(self.workers) - len(self._out)

    def unreachable(self, worker: Worker, reason: str) -> None:
        """No connection to the worker: it is out at once, until a check passes."""
        worker.failures += 1
        worker.recheck.set()
        self._set(worker, False, reason)

    def reset(self, worker: Worker, reason: str) -> None:
        """The worker dropped a request before the headers: one failure, and a check is due now."""
        worker.failures += 1
        worker.recheck.set()
        self.check_failed(worker, reason)

    def interrupted(self, worker: Worker) -> None:
        """An answer of the worker broke off. Others may go on, so only a check says whether it is dead."""
        worker.failures += 1
        worker.recheck.set()

    def check_passed(self, worker: Worker) -> None:
        """An active check found the worker healthy: it is back."""
        if worker.recheck.is_set():
            return  # it failed a request since that check began; the next check decides
        worker.failed_in_a_row = 0
        self._set(worker, True, "it is healthy")

    def check_failed(self, worker: Worker, reason: str, *, at_once: bool = False) -> None:
        """An active check failed; the worker is out after `failures_to_out` failures in a row, or at once."""
        worker.failed_in_a_row += 1
        if at_once or worker.failed_in_a_row >= self._failures_to_out:
            self._set(worker, False, reason)

    def _set(self, worker: Worker, healthy: bool, reason: str) -> None:
        if worker.healthy is healthy:
            return
        worker.healthy = healthy
        self._weigh()
        self._notify(worker, f"worker {worker.name} is {'back' if healthy else 'out'}: {reason}")

    def _weigh(self) -> None:
        """Other workers are healthy than before."""
        self._out = tuple(worker.name for worker in self.workers if not worker.healthy)
        loads = [worker.in_flight for worker in self.workers if worker.healthy]
        self._imbalance.replace(loads, self._clock())
