"""The simulated device's time: on the real clock unless another timeline is installed, with events."""

import time

from coresched_engine.virtual.timeline import Clock, DeviceTimeline


class WallClock:
    """The real clock: waiting sleeps."""

    def now(self) -> float:
        return time.perf_counter()

    def wait_until(self, t: float) -> None:
        while (left := t - time.perf_counter()) > 0:
            time.sleep(left)


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
