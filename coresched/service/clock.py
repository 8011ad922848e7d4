"""The service's clock: what it stamps onto everything that happens."""

from __future__ import annotations

import time


class ServiceClock:
    """Seconds since the epoch when it was made, then monotonic: a corrected wall clock moves nothing.

    It never begins before `not_before`, so that it goes on over restarts and never back.
    """

    def __init__(self, not_before: float = 0.0) -> None:
        self._offset = max(time.time(), not_before) - time.monotonic()
        self._last = not_before

    def go_on_from(self, at: float) -> None:
        """Never tell a time before this one from now on."""
        self._offset = max(self._offset, at - time.monotonic())
        self._last = max(self._last, at)

    def now(self) -> float:
        # The sum is rounded, so that its order needs a guard.
        self._last = max(self._last, time.monotonic() + self._offset)
        return self._last
