"""What several routers ask of the requests in flight."""

from collections.abc import Sequence
from fractions import Fraction


def least_loaded(in_flight: Sequence[int]) -> int:
    """The first of the workers with the fewest requests in flight."""
    return in_flight.index(min(in_flight))


class LoadBound:
    """LBCH's: a worker may take a request iff ``L(w) <= alpha (L_tot + 1) / W``, in whole numbers."""

    def __init__(self, load_bound: float, workers: int) -> None:
        share = Fraction(repr(load_bound)) / workers
        self._p, self._q = share.numerator, share.denominator

    def holds(self, load: int, total: int) -> bool:
        return load * self._q <= self._p * (total + 1)
