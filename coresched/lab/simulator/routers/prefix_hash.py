"""The label's worker on the ring, unless its load is above the mean by a factor and by a number."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from coresched.lab.simulator.routers.router import Fleet, Router

DEFAULT_ABS_THRESHOLD: Final = 10


class PrefixHash(Router):
    """smg 1.13's prefix_hash with a routing key, --prefix-hash-balance-abs-threshold at its default of 10.

    A worker may take the request iff ``L(w) <= max(mean * factor, mean + threshold)``, with ``mean = (L_tot +
    1) / W`` and the load bound as the factor. Else it goes to the least loaded that may, and home if none.
    Simplified: the ring is LBCH's (smg has 150 points a worker, hashed by blake3), and loads are exact (each
    replica of smg sees its own).
    """

    abs_threshold = DEFAULT_ABS_THRESHOLD

    def __init__(self, fleet: Fleet) -> None:
        self._homes = fleet.homes()
        self._factor = Fraction(repr(fleet.load_bound))

    def place(self, sample: int, prompt_tokens: int, in_flight: Sequence[int], now_s: float) -> int:
        home = self._homes[sample]
        mean = Fraction(sum(in_flight) + 1, len(in_flight))
        most = max(mean * self._factor, mean + self.abs_threshold)
        if in_flight[home] <= most:
            return home
        eligible = [worker for worker, load in enumerate(in_flight) if load <= most]
        return min(eligible, key=in_flight.__getitem__, default=home)


class StrictPrefixHash(PrefixHash):
    """The same with a threshold of 0: LBCH's bound, with the least loaded in place of the ring's next."""

    abs_threshold = 0
