"""Which worker takes a request: a router of this process's own over the healthy workers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from time import perf_counter

from coresched.core.routers import RouterName, make_router
from coresched.core.shares import LARGEST_WEIGHT, check_share
from coresched.gateway.members import Imbalance, Members, NoWorkerError, Placed
from coresched.gateway.workers import Worker

__all__ = ["Fleet", "Imbalance", "NoWorkerError"]


class Fleet(Members):
    """The workers, and the router over all of them.

    A worker that is out keeps its points on the ring and is only excluded, so that no label but its own
    moves, and these come home with it. With the router sticky-bounded, which has no ring, they stay where
    they went. For one event loop.
    """

    knows_homes = True

    on_change: Callable[[], None] | None = None
    """Called when a worker went out or came back, was added or removed."""

    def __init__(
        self,
        workers: Sequence[Worker],
        *,
        router: RouterName = "lbch",
        load_bound: float = 1.25,
        virtual_nodes: int = 128,
        slack: int = 0,
        failures_to_out: int = 3,
        notify: Callable[[Worker, str], None] = lambda worker, line: None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """`failures_to_out`, `notify` and `clock` as of Members.

        Raises what make_router and check_share raise.
        """
        super().__init__(workers, failures_to_out=failures_to_out, notify=notify, clock=clock)
        for worker in workers:
            check_share(worker.weight, virtual_nodes)
        self._by_name = {worker.name: worker for worker in workers}
        self._removed: dict[str, Worker] = {}
        """Those with requests in flight from before."""
        self._virtual_nodes = virtual_nodes
        weights = {worker.name: worker.weight for worker in workers}
        self._router = make_router(router, weights, load_bound, virtual_nodes, slack)

    async def place(self, label: str, failed: Sequence[Worker] = ()) -> Placed:
        """As `route`, which does not wait."""
        worker = self.route(label, failed)
        return Placed(worker, partial(self.release, worker))

    def route(self, label: str, failed: Sequence[Worker] = ()) -> Worker:
        """The worker for a request of this label, counted in flight there until `release`.

        `failed`: workers that this request could not reach. Raises NoWorkerError.
        """
        began = self._clock()
        exclude = self._excluded(failed)
        home = self._router.home(label)  # before it moves
        worker = self._by_name[self._router.route(label, exclude)]
        self._took(label, worker, began, home, failed)
        return worker

    def place_in_order(self, label: str, exclude: Collection[str] = ()) -> list[Worker]:
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
        self._took(label, worker, began, home)
        return order

    def _took(
        self, label: str, worker: Worker, began: float, home: str | None, failed: Sequence[Worker] = ()
    ) -> None:
        self._began(label, worker, began, failed)
        if home is not None and home != worker.name:
            self._by_name[home].spilled += 1

    def move(self, worker: Worker, to: Worker) -> None:
        """A request in flight on one worker is in fact on another, which may be out by now."""
        self._router.hold(to.name)
        if self._takes_part(to):
            self._imbalance.began(to.in_flight, self._clock())
        to.in_flight += 1
        self.release(worker)

    def release(self, worker: Worker) -> None:
        """End one request in flight; exactly once for each `route` or `place_in_order`."""
        self._router.release(worker.name)
        self._ended(worker)
        if worker.in_flight == 0:
            self._removed.pop(worker.name, None)

    def forget(self, label: str) -> None:
        """The label will not come again."""
        self._router.forget(label)

    def get(self, name: str) -> Worker | None:
        """The worker of this name that takes part, healthy or not."""
        return self._by_name.get(name)

    def check_weight(self, weight: float) -> None:
        """Raises ValueError for a weight that no worker may have."""
        check_share(weight, self._virtual_nodes)
        if not 0 < weight <= LARGEST_WEIGHT:
            raise ValueError(f"weight must be above 0, at most {LARGEST_WEIGHT}, got {weight:g}")

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

    def in_flight(self) -> dict[str, int]:
        """Requests in flight by worker."""
        return self._router.loads()

    def _changed(self) -> None:
        self.workers = tuple(self._by_name.values())
        self._weigh()

    def _weigh(self) -> None:
        super()._weigh()
        if self.on_change is not None:
            self.on_change()

    def _takes_part(self, worker: Worker) -> bool:
        return super()._takes_part(worker) and worker.name not in self._removed
