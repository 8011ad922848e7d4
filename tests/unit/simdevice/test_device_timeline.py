"""Forwards run back to back on the device, and events end with them."""

import time

from coresched_engine.virtual.timeline import DeviceTimeline
from coresched_simdevice import timeline
from coresched_simdevice.timeline import StepEvent, WallClock


class NumberClock:
    def __init__(self) -> None:
        self.t = 10.0

    def now(self) -> float:
        return self.t

    def wait_until(self, t: float) -> None:
        self.t = max(self.t, t)


def test_a_forward_begins_when_the_one_before_has_ended() -> None:
    clock = NumberClock()
    device = DeviceTimeline(clock)
    assert device.launch(2.0) == 12.0
    assert device.launch(3.0) == 15.0
    clock.t = 20.0
    assert device.launch(1.0) == 21.0
    assert (device.busy_s, device.steps) == (6.0, 3)


def test_an_event_ends_with_its_forward() -> None:
    clock = NumberClock()
    event = StepEvent(DeviceTimeline(clock).launch(2.0), clock)
    event.record()
    event.wait()
    assert not event.query()
    event.synchronize()
    assert event.query()
    assert clock.t == 12.0
    event.synchronize()
    assert clock.t == 12.0


def test_on_the_wall_clock_waiting_takes_the_time() -> None:
    clock = WallClock()
    start = time.perf_counter()
    StepEvent(DeviceTimeline(clock).launch(0.02), clock).synchronize()
    assert time.perf_counter() >= start + 0.02


def test_a_process_has_one_timeline_until_another_is_installed() -> None:
    before = timeline.current()
    assert timeline.current() is before
    other = DeviceTimeline(NumberClock())
    try:
        timeline.install(other)
        assert timeline.current() is other
    finally:
        timeline.install(before)
