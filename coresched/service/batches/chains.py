"""How deep the admitted samples of a batch are, and for how long its environment queue has let some wait."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coresched.service.batches.samples import SampleRecord

DEPTHS = ("0", "1", "2-3", "4-7", "8-15", "16-31", "32-63", "64+")
"""Groups of completed turns."""

_KEPT = 64  # so few entries of samples that wait no more are never worth a rebuild


def depth(turns: int) -> int:
    """Which of DEPTHS a sample with so many completed turns belongs to."""
    return min(turns.bit_length(), len(DEPTHS) - 1)


class Chains:
    """Follows the samples of one batch through the steps below; a step takes O(log samples), amortised.

    `by_depth` has the number of admitted samples for each of DEPTHS, `inference` that in an inference turn.
    """

    def __init__(self) -> None:
        self.by_depth = [0] * len(DEPTHS)
        self.inference = 0
        self._queued: dict[SampleRecord, int] = {}
        self._by_start: list[tuple[float, int, SampleRecord]] = []
        self._entries = 0

    def admitted(self, record: SampleRecord) -> None:
        record.turns = 0
        self.by_depth[0] += 1

    def advanced(self, record: SampleRecord) -> None:
        """A turn of an admitted sample is complete."""
        if record.turns is not None:
            self.by_depth[depth(record.turns)] -= 1
            record.turns += 1
            self.by_depth[depth(record.turns)] += 1

    def let_go(self, record: SampleRecord) -> None:
        """The sample ended or went back, whether it was admitted or not."""
        if record.turns is not None:
            self.by_depth[depth(record.turns)] -= 1
            record.turns = None

    def queued(self, record: SampleRecord) -> None:
        """It waits for an environment slot, since `record.since`."""
        self._entries += 1
        self._queued[record] = self._entries
        if len(self._by_start) > _KEPT + 2 * len(self._queued):
            self._by_start = [entry for entry in self._by_start if self._waits(entry)]
            heapify(self._by_start)
        heappush(self._by_start, (record.since, self._entries, record))

    def unqueued(self, record: SampleRecord) -> None:
        """It got the slot, or waits no more."""
        del self._queued[record]

    def oldest(self) -> float | None:
        """When the longest wait for an environment slot began."""
        while self._by_start and not self._waits(self._by_start[0]):
            heappop(self._by_start)
        return self._by_start[0][0] if self._by_start else None

    def _waits(self, entry: tuple[float, int, SampleRecord]) -> bool:
        return self._queued.get(entry[2]) == entry[1]
