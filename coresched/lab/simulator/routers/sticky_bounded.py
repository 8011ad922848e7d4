"""A trajectory's first turn to the least loaded worker, and there it stays within LBCH's bound."""

from collections.abc import Sequence

from coresched.lab.simulator.routers.loads import LoadBound
from coresched.lab.simulator.routers.router import Fleet, Router


class StickyBounded(Router):
    """Our own: LBCH's bound without its ring.

    A later turn goes to the worker of the turn before it if ``L(w) <= alpha (L_tot + 1) / W``, else to the
    least loaded, and stays there. Of several least loaded, the one with the fewest trajectories.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._bound = LoadBound(fleet.load_bound, fleet.workers)
        self._trajectories = [0] * fleet.workers
        self._worker_of: dict[int, int] = {}

    def place(self, sample: int, prompt_tokens: int, in_flight: Sequence[int], now_s: float) -> int:
        last = self._worker_of.get(sample)
        if last is not None:
            if self._bound.holds(in_flight[last], sum(in_flight)):
                return last
            self._trajectories[last] -= 1
        worker = min(range(len(in_flight)), key=lambda w: (in_flight[w], self._trajectories[w]))
        self._trajectories[worker] += 1
        self._worker_of[sample] = worker
        return worker

    def finished(self, sample: int) -> None:
        self._trajectories[self._worker_of.pop(sample)] -= 1
