"""Which worker takes a request: a router of this process's own over the healthy workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

from coresched.core.routers import RouterName, make_router
from coresched.core.shares import check_share
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
        """`failures_to_out`, `notify` and `clock` as of Members.

        Raises what make_router and check_share raise.
        """
        super().__init__(workers, failures_to_out=failures_to_out, notify=notify, clock=clock)
        for worker in workers:
            check_share(worker.weight, virtual_nodes)
        self._by_name = {worker.name: worker for worker in workers}
        weights = {worker.name: worker.weight for worker in workers}
        self._router = make_router(router, weights, load_bound, virtual_nodes)

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
        self._began(label, worker, began, failed)
        if home is not None and home != worker.name:
            self._by_name[home].spilled += 1
        return worker

    def release(self, worker: Worker) -> None:
        """End one request in flight; exactly once for each `route`."""
        self._router.release(worker.name)
        self._ended(worker)

    def in_flight(self) -> dict[str, int]:
        """Requests in flight by worker."""
        return self._router.loads()
