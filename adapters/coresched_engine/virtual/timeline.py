"""The time of a simulated device, which runs its forwards one after the other."""

from typing import Final, Protocol


class Clock(Protocol):
    """Seconds since an arbitrary moment, never going back."""

    def now(self) -> float: ...

    def wait_until(self, t: float) -> None:
        """Return at ``t`` or later; at once if it has passed."""


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
