"""Returning turns held back until a few of them can be prefilled in one batch."""


class HeldReturns:
    """Prefill coalescing in front of the workers, as a gateway could do it.

    A turn that is not its trajectory's first is held until ``returns_held`` of them wait for the same
    worker, or as many as requests are at work there, whichever is fewer; a first turn takes along those
    that are held. Who calls this also releases what has been held for too long: see `opened`, `overdue`.
    """

    def __init__(self, workers: int, returns_held: int) -> None:
        self._most = returns_held
        self._held: list[list[int]] = [[] for _ in range(workers)]
        self._releases = [0] * workers

    def arrived(self, worker: int, sample: int, in_flight: int, *, returning: bool) -> list[int]:
        """A turn of ``sample`` is for ``worker``; returns the samples whose turns go there now, in order.

        ``in_flight`` counts the worker's requests, this one and the held ones among them.
        """
        held = self._held[worker]
        held.append(sample)
        if returning and len(held) < min(self._most, in_flight - len(held)):
            return []
        return self._release(worker)

    def opened(self, worker: int) -> int | None:
        """The number of the group that the last arrival has begun; None where it has begun none."""
        return self._releases[worker] if len(self._held[worker]) == 1 else None

    def overdue(self, worker: int, group: int) -> list[int]:
        """The first of a group has waited for long enough; returns what goes to the worker, as `arrived`."""
        return self._release(worker) if self._releases[worker] == group else []

    def _release(self, worker: int) -> list[int]:
        released, self._held[worker] = self._held[worker], []
        self._releases[worker] += 1
        return released
