"""A trajectory's first turn to the least loaded worker, and there it stays within LBCH's bound."""

from collections.abc import Sequence

from coresched.core.sticky import StickyBoundedRouter
from coresched.lab.simulator.routers.router import Fleet, Router, worker_names


class StickyBounded(Router):
    """Our own: that of `coresched gateway --router sticky-bounded`, see `StickyBoundedRouter`.

    The gateway is not told that a trajectory has ended; it forgets the labels that were unused longest.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._labels = fleet.labels
        self._names = worker_names(fleet.workers)
        self._index_of = {name: index for index, name in enumerate(self._names)}
        self._router = StickyBoundedRouter(self._names, fleet.load_bound)

    def place(self, sample: int, prompt_tokens: int, in_flight: Sequence[int], now_s: float) -> int:
        return self._index_of[self._router.route(self._labels[sample])]

    def ended(self, sample: int, worker: int, now_s: float) -> None:
        self._router.release(self._names[worker])
