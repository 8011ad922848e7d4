"""What the resident block of an embedded batch does; its two faces add how a caller waits."""

from __future__ import annotations

from coresched.client.local import LocalBatch, Waiter


class LocalResident:
    """A sandbox that lives: it holds a resident slot until the block or the sample ends."""

    def __init__(self, local: LocalBatch, sample: str) -> None:
        self._local = local
        self._sample = sample
        self._open = False
        self.queue_s = 0.0
        """Seconds this block waited for its slot; extend your own timeouts by it."""

    def _request(self, waiter: Waiter) -> None:
        self._local.request_resident(self._sample, waiter)

    def _give_up(self) -> None:
        """The wait, or the slot that came meanwhile."""
        self._local.end_resident(self._sample, failed=True)

    def _granted(self) -> None:
        self._open = True
        self.queue_s = self._local.resident_granted(self._sample)

    def _end(self, failed: bool) -> None:
        if self._open:
            self._open = False
            self._local.end_resident(self._sample, failed)
