"""Virtual time: it moves only when somebody waits, and never beyond what is allowed."""

import time
from collections.abc import Callable
from math import inf


class VirtualClock:
    """Seconds from 0. ``pause`` is called where a wait would go beyond ``limit``, until the limit allows it.

    It has the methods of `coresched_simdevice.timeline.Clock`.
    """

    def __init__(self, pause: Callable[[], None]) -> None:
        self._pause = pause
        self._now = 0.0
        self.limit = 0.0
        """Time stops here; inf where it may run on."""
        self.waits_for = 0.0
        """While paused in a wait: what was waited for; inf where nothing is to come."""

    def now(self) -> float:
        return self._now

    def wait_until(self, t: float) -> None:
        """Move to ``t``; at once if it has passed."""
        self.wait_for(lambda: t)

    def wait_for(self, moment: Callable[[], float]) -> None:
        """Move to ``moment()``, which is asked again after each pause: what it gives may change meanwhile."""
        while (t := moment()) > self._now:
            if t <= self.limit and t < inf:
                self._now = t
                return
            if self.limit < inf:
                self._now = max(self._now, self.limit)
            self.waits_for = t
            self._pause()


# SGLang takes a stamp of 0.0 for one that has not been set, so its clocks begin this much later.
UNSET_BEFORE = 1e-300


class VirtualTime:
    """Stands for the module ``time`` in a module of SGLang: its clocks are virtual, the rest is real."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def perf_counter(self) -> float:
        return self._clock.now() or UNSET_BEFORE

    # One clock for all, so that differences between two kinds of stamps are right too.
    monotonic = time = perf_counter

    def monotonic_ns(self) -> int:
        return round(self.perf_counter() * 1e9)

    perf_counter_ns = time_ns = monotonic_ns

    def sleep(self, seconds: float) -> None:
        self._clock.wait_until(self._clock.now() + seconds)

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)
