"""The simulated device's time: forwards run one after the other on it, and events end with them."""

import time
from typing import Final, Protocol


class Clock(Protocol):
    """Seconds since an arbitrary moment, never going back."""

    def now(self) -> float: ...

    def wait_until(self, t: float) -> None:
        """Return at ``t`` or later; at once if it has passed."""


class WallClock:
    """The real clock: waiting sleeps."""

    def now(self) -> float:
        return time.perf_counter()

    def wait_until(self, t: float) -> None:
        while (left := t - time.perf_counter()) > 0:
            time.sleep(left)


class DeviceTimeline:
    """The queue of forwards on one device, which runs them back to back, as the stream of a GPU does.

    ``clock`` gives the time now; ``busy_s`` sums the forwards' durations in seconds of that clock, ``steps``
    counts the forwards.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock: Final = clock
        self.free_at = clock.now()
        self.busy_s = 0.0
        self.steps = 0

    def launch(self, seconds: float) -> float:
        """Queue a forward of ``seconds``, at least 0; returns when it ends, on this timeline's clock."""
        self.free_at = max(self.clock.now(), self.free_at) + seconds
        self.busy_s += seconds
        self.steps += 1
        return self.free_at


class StepEvent:
    """The end of one forward, with the methods of the device events that SGLang keeps.

    Its time is known when it is made, so recording it, and making a stream wait for it, do nothing.
    """

    __slots__ = ("clock", "end")

    def __init__(self, end: float, clock: Clock) -> None:
        self.end = end
        self.clock = clock

    def record(self, stream: object = None) -> None:
        pass

    def wait(self, stream: object = None) -> None:
        pass

    def query(self) -> bool:
        """Whether the forward has ended."""
        return self.clock.now() >= self.end

    def synchronize(self) -> None:
        """Wait until the forward has ended."""
        self.clock.wait_until(self.end)


_current: DeviceTimeline | None = None


def current() -> DeviceTimeline:
    """This process's timeline: the installed one, or one on the real clock."""
    global _current
    if _current is None:
        _current = DeviceTimeline(WallClock())
    return _current


def install(timeline: DeviceTimeline) -> None:
    """Make ``timeline`` this process's; forwards launched before stay on the one they were launched on."""
    global _current
    _current = timeline
