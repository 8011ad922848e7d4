"""What several routers ask of the requests in flight."""

from collections.abc import Sequence


def least_loaded(in_flight: Sequence[int]) -> int:
    """The first of the workers with the fewest requests in flight."""
    return in_flight.index(min(in_flight))
