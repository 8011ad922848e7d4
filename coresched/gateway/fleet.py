"""Which worker takes a request: a router over the healthy workers, and what is in flight on each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from time import perf_counter
from typing import NamedTuple

from coresched.core.imbalance import RequestImbalance
from coresched.core.routers import RouterName, make_router
from coresched.core.shares import check_share
from coresched.gateway.workers import Worker
from coresched.metrics.histogram import DECISION_S, Histogram


class NoWorkerError(LookupError):
    """There is no healthy worker that could take the request."""


class Imbalance(NamedTuple):
    """Request imbalance d of the healthy workers: now (None with fewer than two requests), its integral over
    the time with more than one request in flight, and that time, in seconds."""

    present: float | None
    over_s: float
    busy_s: float


class Fleet:
    """The workers, the router over all of them, and who is out at present.

    A worker that is out keeps its points on the ring and is only excluded, so that no label but its own
    moves, and these come home with it. With the router sticky-bounded, which has no ring, they stay where
    they went. For one event loop.
    """

    on_route: Callable[[str, str], None] | None = None
    """Called with the label and the worker's name for each request routed."""

    on_change: Callable[[], None] | None = None
    """Called when a worker went out or came back, was added or removed."""

    def __init__(
        self,
        workers: Sequence[Worker],
        *,
        router: RouterName = "lbch",
        load_bound: float = 1.25,
        virtual_nodes: int = 128,
        failures_to_out: int = 3,
        notify: Callable[[Worker, str], None] = lambda worker, line: None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """`notify` is called with a worker that goes out or comes back, and a line about it.

        `clock` is monotonic, in seconds, and measures only: nothing is decided by it.

        Raises what make_router and check_share raise.
        """
        for worker in workers:
            check_share(worker.weight, virtual_nodes)
        self.workers = tuple(workers)
        """The workers that take part, in order of addition."""
        self._by_name = {worker.name: worker for worker in workers}
        self._removed: dict[str, Worker] = {}
        """Those with requests in flight from before."""
        self._virtual_nodes = virtual_nodes
        weights = {worker.name: worker.weight for worker in workers}
        self._router = make_router(router, weights, load_bound, virtual_nodes)
        self._failures_to_out = failures_to_out
        self._notify = notify
        self._clock = clock
        self._imbalance = RequestImbalance([0] * len(self.workers), clock())
        self.decision_s = Histogram(DECISION_S)
        """What each route took, its checks included."""
        self._out: tuple[str, ...] = ()

    def route(self, label: str, failed: Sequence[Worker] = ()) -> Worker:
        """The worker for a request of this label, counted in flight there until `release`.

        `failed`: workers that this request could not reach. Raises NoWorkerError.
        """
        began = self._clock()
        exclude = self._out
        if failed:
            exclude = tuple({*exclude, *(worker.name for worker in failed)})
        if exclude and len(exclude) == len(self.workers):
            raise NoWorkerError
        home = self._router.home(label)  # before it moves
        worker = self._by_name[self._router.route(label, exclude)]
        self._took(worker, label, home, began)
        if failed:
            worker.retries += 1
        return worker

    def place(self, label: str, exclude: Collection[str] = ()) -> list[Worker]:
        """All workers that may take a request of this label, best first; it counts in flight on the first.

        For who sends the request elsewhere if that one does not take it, and says so with `move`.
        `exclude`: names of workers that may not take it. Raises NoWorkerError.
        """
        began = self._clock()
        excluded = {*self._out, *exclude}
        if len(excluded) == len(self.workers):
            raise NoWorkerError
        home = self._router.home(label)  # before it moves
        order = [self._by_name[name] for name in self._router.order(label, excluded)]
        worker = order[0]
        self._router.hold(worker.name)
        self._router.settle(label, worker.name)
        self._took(worker, label, home, began)
        return order

    def _took(self, worker: Worker, label: str, home: str | None, began: float) -> None:
        now = self._clock()
        self.decision_s.observe(now - began)
        self._imbalance.began(worker.in_flight, now)
        worker.in_flight += 1
        worker.requests += 1
        if home is not None and home != worker.name:
            self._by_name[home].spilled += 1
        if self.on_route is not None:
            self.on_route(label, worker.name)

    def move(self, worker: Worker, to: Worker) -> None:
        """A request in flight on one worker is in fact on another, which may be out by now."""
        self._router.hold(to.name)
        if self._takes_part(to):
            self._imbalance.began(to.in_flight, self._clock())
        to.in_flight += 1
        self.release(worker)

    def release(self, worker: Worker) -> None:
        """End one request in flight; exactly once for each `route` or `place`."""
        self._router.release(worker.name)
        if self._takes_part(worker):
            self._imbalance.ended(worker.in_flight, self._clock())
        worker.in_flight -= 1
        if worker.in_flight == 0:
            self._removed.pop(worker.name, None)

    def forget(self, label: str) -> None:
        """The label will not come again."""
        self._router.forget(label)

    def get(self, name: str) -> Worker | None:
        """The worker of this name that takes part, healthy or not."""
        return self._by_name.get(name)

    def add(self, worker: Worker) -> Worker:
        """One more worker takes part; only labels whose home it becomes move.

        One that was removed with requests in flight resumes with them: then it is the object of before, with
        the new weight, that takes part and is returned. Raises ValueError for one that is there, or a weight.
        """
        check_share(worker.weight, self._virtual_nodes)
        self._router.add_worker(worker.name, worker.weight)
        before = self._removed.pop(worker.name, None)
        if before is not None:
            before.weight, before.healthy, before.failed_in_a_row = worker.weight, worker.healthy, 0
            worker = before
        self._by_name[worker.name] = worker
        self._changed()
        return worker

    def remove(self, worker: Worker) -> None:
        """A worker gets nothing more; its requests in flight may still be released."""
        self._router.remove_worker(worker.name)
        del self._by_name[worker.name]
        if worker.in_flight:
            self._removed[worker.name] = worker
        self._changed()

    def _takes_part(self, worker: Worker) -> bool:
        return worker.healthy and worker.name not in self._removed

    def _changed(self) -> None:
        self.workers = tuple(self._by_name.values())
        self._out = tuple(worker.name for worker in self.workers if not worker.healthy)
        loads = [worker.in_flight for worker in self.workers if worker.healthy]
        self._imbalance.replace(loads, self._clock())
        if self.on_change is not None:
            self.on_change()

    def first(self, failed: Sequence[Worker] = ()) -> Worker:
        """The first healthy worker, for what is no inference request, uncounted. Raises NoWorkerError."""
        for worker in self.workers:
            if worker.healthy and worker not in failed:
                return worker
        raise NoWorkerError

    def in_flight(self) -> dict[str, int]:
        """Requests in flight by worker."""
        return self._router.loads()

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
        self._changed()
        self._notify(worker, f"worker {worker.name} is {'back' if healthy else 'out'}: {reason}")
