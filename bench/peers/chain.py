"""CAAS in Python, on the priority queues a Python program would take.

All order by ``(floor(a / B), -n, floor(mean(tau) / D_I), e)``; the job ends the tuple and is never compared.
"""

import asyncio
import heapq
import queue
from collections.abc import Hashable
from itertools import count
from math import floor
from typing import Any, Final

_REMOVED: Final = object()


class HeapqQueue:
    """A list under heapq; it cannot discard."""

    def __init__(self, band_s: float = 30.0, bucket_s: float = 1.0) -> None:
        self._band_s = band_s
        self._bucket_s = bucket_s
        self._entered = count()
        self._heap: list[tuple[int, int, int, int, Any]] = []

    def push(self, job: Hashable, *, requested_at: float, turns: int, mean_inference_s: float) -> None:
        band, bucket = floor(requested_at / self._band_s), floor(mean_inference_s / self._bucket_s)
        heapq.heappush(self._heap, (band, -turns, bucket, next(self._entered), job))

    def pop(self) -> Any:
        return heapq.heappop(self._heap)[-1]


class PriorityQueue:
    """A queue.PriorityQueue (for threads) or asyncio.PriorityQueue (for tasks), never waited for."""

    def __init__(
        self,
        waiting: "queue.PriorityQueue[Any] | asyncio.PriorityQueue[Any]",
        band_s: float = 30.0,
        bucket_s: float = 1.0,
    ) -> None:
        self._put, self._get = waiting.put_nowait, waiting.get_nowait
        self._band_s = band_s
        self._bucket_s = bucket_s
        self._entered = count()

    def push(self, job: Hashable, *, requested_at: float, turns: int, mean_inference_s: float) -> None:
        band, bucket = floor(requested_at / self._band_s), floor(mean_inference_s / self._bucket_s)
        self._put((band, -turns, bucket, next(self._entered), job))

    def pop(self) -> Any:
        return self._get()[-1]


class LazyHeapqQueue:
    """heapq that marks what is discarded and skips it later, as the heapq documentation advises.

    Marked entries are swept out once they are half of the heap, so that memory stays O(jobs waiting).
    """

    def __init__(self, band_s: float = 30.0, bucket_s: float = 1.0) -> None:
        self._band_s = band_s
        self._bucket_s = bucket_s
        self._entered = count()
        self._heap: list[list[Any]] = []
        self._entries: dict[Any, list[Any]] = {}

    def push(self, job: Hashable, *, requested_at: float, turns: int, mean_inference_s: float) -> None:
        band, bucket = floor(requested_at / self._band_s), floor(mean_inference_s / self._bucket_s)
        entry = self._entries[job] = [band, -turns, bucket, next(self._entered), job]
        heapq.heappush(self._heap, entry)

    def pop(self) -> Any:
        while True:
            job = heapq.heappop(self._heap)[-1]
            if job is not _REMOVED:
                del self._entries[job]
                return job

    def discard(self, job: Hashable) -> bool:
        entry = self._entries.pop(job, None)
        if entry is None:
            return False
        entry[-1] = _REMOVED
        if len(self._heap) > 2 * len(self._entries):
            self._heap = [entry for entry in self._heap if entry[-1] is not _REMOVED]
            heapq.heapify(self._heap)
        return True


class SortedListQueue:
    """A sortedcontainers.SortedList, and a dict from job to its entry for discard."""

    def __init__(self, ordered: Any, band_s: float = 30.0, bucket_s: float = 1.0) -> None:
        self._ordered = ordered
        self._band_s = band_s
        self._bucket_s = bucket_s
        self._entered = count()
        self._entries: dict[Any, tuple[int, int, int, int, Any]] = {}

    def push(self, job: Hashable, *, requested_at: float, turns: int, mean_inference_s: float) -> None:
        band, bucket = floor(requested_at / self._band_s), floor(mean_inference_s / self._bucket_s)
        entry = self._entries[job] = (band, -turns, bucket, next(self._entered), job)
        self._ordered.add(entry)

    def pop(self) -> Any:
        job = self._ordered.pop(0)[-1]
        del self._entries[job]
        return job

    def discard(self, job: Hashable) -> bool:
        entry = self._entries.pop(job, None)
        if entry is None:
            return False
        self._ordered.remove(entry)
        return True
