"""On a clock that only the subjects move, so that every number is known."""

import gc
from collections.abc import Callable, Iterator

import pytest

from bench import timing
from bench.timing import Effort, Subject, interleaved, operations_lasting, seconds_an_operation, timed


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def subject(self, operation_s: float) -> Subject:
        def run(operations: int) -> None:
            self.now += operations * operation_s

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timing, "thread_time", lambda: clock.now)
    return clock


@pytest.fixture
def collector() -> Iterator[None]:
    yield
    gc.enable()


def test_timed_measures_the_call_alone(clock: Clock) -> None:
    assert timed(lambda: clock.subject(0.25)(3)) == 0.75


@pytest.mark.usefixtures("collector")
def test_the_collector_rests_while_timed_and_is_as_before_afterwards() -> None:
    seen: list[bool] = []
    timed(lambda: seen.append(gc.isenabled()))
    assert gc.isenabled()
    gc.disable()
    timed(lambda: seen.append(gc.isenabled()))
    assert not gc.isenabled()
    assert seen == [False, False]


@pytest.mark.usefixtures("collector")
def test_the_collector_comes_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        timed(lambda: 1 // 0)
    assert gc.isenabled()


def test_timings_take_turns_and_turns_begin_with_another_each_round() -> None:
    calls: list[str] = []

    def timing_of(name: str) -> Callable[[], float]:
        def take() -> float:
            calls.append(name)
            return float(len(calls))

        return take

    results = interleaved([timing_of("a"), timing_of("b"), timing_of("c")], 4)
    assert "".join(calls) == "abcbcacababc"
    assert results == [[1.0, 6.0, 8.0, 10.0], [2.0, 4.0, 9.0, 11.0], [3.0, 5.0, 7.0, 12.0]]


@pytest.mark.parametrize("operation_s", [1e-9, 1e-6, 0.015625, 3.0])
def test_operations_last_as_long_as_asked_and_not_much_longer(clock: Clock, operation_s: float) -> None:
    operations = operations_lasting(clock.subject(operation_s), 0.5)
    assert operations == 1 or 0.5 <= operations * operation_s < 1.0
    assert operations * operation_s >= 0.5


def test_seconds_an_operation_of_each_subject(clock: Clock) -> None:
    subjects = [clock.subject(2.0**-10), clock.subject(2.0**-4)]
    assert seconds_an_operation(subjects, Effort(repeats=3, repeat_s=0.25)) == [[2.0**-10] * 3, [2.0**-4] * 3]
