"""Virtual time, and a loop that runs only while its caller waits for it."""

from math import inf

import pytest
from coresched_engine.virtual.timeline import DeviceTimeline
from coresched_simdevice.timeline import StepEvent
from coresched_simdevice.virtual.clock import UNSET_BEFORE, VirtualClock, VirtualTime
from coresched_simdevice.virtual.stepped import SteppedThread


class Stepped:
    """A body that uses a clock, and the clock's limit moved from outside."""

    def __init__(self) -> None:
        self.clock = VirtualClock(lambda: self.loop.pause())
        self.seen: list[float] = []
        self.loop = SteppedThread(self.body)

    def body(self) -> None:
        for moment in (2.0, 1.0, 5.0):
            self.clock.wait_until(moment)
            self.seen.append(self.clock.now())

    def run(self, limit: float) -> list[float]:
        self.clock.limit = limit
        self.loop.resume()
        return self.seen


def test_time_moves_to_what_is_waited_for_and_never_back() -> None:
    stepped = Stepped()
    assert stepped.run(inf) == [2.0, 2.0, 5.0]
    assert stepped.loop.ended


def test_time_stops_at_the_limit_in_the_middle_of_a_wait() -> None:
    stepped = Stepped()
    assert stepped.run(1.5) == []
    assert (stepped.clock.now(), stepped.clock.waits_for) == (1.5, 2.0)
    assert stepped.run(3.0) == [2.0, 2.0]
    assert (stepped.clock.now(), stepped.clock.waits_for) == (3.0, 5.0)
    assert stepped.run(5.0) == [2.0, 2.0, 5.0]


def test_what_is_waited_for_may_change_while_time_stands() -> None:
    moments = [inf]
    clock = VirtualClock(lambda: loop.pause())
    loop = SteppedThread(lambda: clock.wait_for(lambda: moments[0]))
    clock.limit = inf
    loop.resume()
    assert (clock.now(), clock.waits_for, loop.ended) == (0.0, inf, False)
    clock.limit = 4.0
    loop.resume()
    assert clock.now() == 4.0
    moments[0] = 6.0
    clock.limit = inf
    loop.resume()
    assert (clock.now(), loop.ended) == (6.0, True)


def test_the_device_runs_forwards_one_after_the_other_on_it() -> None:
    clock = VirtualClock(lambda: pytest.fail("nothing here goes beyond the limit"))
    clock.limit = inf
    timeline = DeviceTimeline(clock)
    ends = [StepEvent(timeline.launch(seconds), clock) for seconds in (2.0, 3.0)]
    ends[0].synchronize()
    assert (clock.now(), ends[0].query(), ends[1].query()) == (2.0, True, False)
    ends[1].synchronize()
    assert (clock.now(), timeline.busy_s, timeline.steps) == (5.0, 5.0, 2)


def test_an_error_of_the_body_comes_out_where_it_was_resumed() -> None:
    def body() -> None:
        loop.pause()
        raise LookupError("here")

    loop = SteppedThread(body)
    loop.resume()
    with pytest.raises(LookupError, match="here"):
        loop.resume()
    with pytest.raises(RuntimeError, match="has ended"):
        loop.resume()


def test_the_module_time_on_the_virtual_clock() -> None:
    clock = VirtualClock(lambda: pytest.fail("nothing here goes beyond the limit"))
    clock.limit = inf
    time = VirtualTime(clock)
    assert time.perf_counter() == time.monotonic() == time.time() == UNSET_BEFORE > 0
    time.sleep(2.5)
    assert (clock.now(), time.perf_counter(), time.monotonic_ns()) == (2.5, 2.5, 2_500_000_000)
    assert callable(time.strftime)
