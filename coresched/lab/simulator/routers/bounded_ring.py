"""The label's worker on the ring, unless it is full; then along an order of the label's own."""

from collections.abc import Sequence
from random import Random

from coresched.lab.simulator.routers.router import Fleet, Router


class BoundedRing(Router):
    """Envoy's RING_HASH with hash_balance_factor f, a whole percentage: here that of the load bound.

    A worker has ``max(ceil(ceil((L_tot + 1) f / 100) / W), 1)`` places, and may take a request while ``L(w)``
    is not above them. If home may not, the first that may in a shuffle seeded by the label; if none may, the
    one with the least load a place, home first. Source: thread_aware_lb_impl.cc. Simplified: the ring is
    LBCH's, the shuffle is Python's, and every request counts (Envoy: those with a connection).
    """

    def __init__(self, fleet: Fleet) -> None:
        self._labels = fleet.labels
        self._homes = fleet.homes()
        self._percent = round(100 * fleet.load_bound)
        self._orders: dict[int, list[int]] = {}

    def place(self, sample: int, prompt_tokens: int, in_flight: Sequence[int], now_s: float) -> int:
        workers, home = len(in_flight), self._homes[sample]
        all_places = -(-(sum(in_flight) + 1) * self._percent // 100)
        places = max(-(-all_places // workers), 1)
        if in_flight[home] <= places:
            return home
        order = self._order(sample, workers)
        free = (worker for worker in order if in_flight[worker] <= places)
        # All have equally many places, so the least load a place is the least load.
        return next(free, min((home, *order), key=in_flight.__getitem__))

    def _order(self, sample: int, workers: int) -> list[int]:
        if sample not in self._orders:
            others = [worker for worker in range(workers) if worker != self._homes[sample]]
            Random(self._labels[sample]).shuffle(others)
            self._orders[sample] = others
        return self._orders[sample]
