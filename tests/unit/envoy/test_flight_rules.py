"""When the count of a request ends that Envoy was sent off with, rule by rule."""

from collections.abc import Callable

import pytest
from coresched_envoy.endpoints import Endpoint
from coresched_envoy.flights import UNHEARD_S, Flight, Flights

WAIT_S, LONGEST_S = 5.0, 300.0
WORKER = Endpoint("10.0.0.1:30000")
ENVOY = "ipv4:10.0.0.9:4000"


class Rig:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.flights = Flights(
            release=lambda worker: None,
            wait_s=WAIT_S,
            longest_s=LONGEST_S,
            silent=lambda connection: self.said.append("silent"),
            heard=lambda connection: self.said.append("heard"),
        )

    def begin(self, now: float = 0.0, connection: str = ENVOY) -> Flight:
        return self.flights.begin(WORKER, connection, now)

    def streamed(self, now: float = 0.0, *, plain: bool = False, connection: str = ENVOY) -> Flight:
        """A request whose response's headers came, with which its stream ended."""
        flight = self.begin(now, connection)
        self.flights.answered(flight, plain=plain)
        self.flights.over(flight, now)
        return flight

    def heard(self, connection: str = ENVOY, log: object = "log") -> None:
        """Envoy has shown that it has an access log."""
        self.flights.line(self.begin(connection=connection).mark, log)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_line_ends_a_request_once(rig: Rig) -> None:
    flight = rig.streamed()
    rig.flights.line(flight.mark, "log")
    assert flight.ended
    rig.flights.line(flight.mark, "log")
    rig.flights.line("of-another-process-1", "log")
    assert (rig.flights.lines, rig.flights.late_lines, rig.flights.other_lines) == (1, 0, 2)


def test_a_streamed_answer_counts_for_long_where_lines_come(rig: Rig) -> None:
    rig.heard()
    flight = rig.streamed()
    rig.flights.sweep(LONGEST_S - 1)
    assert not flight.ended
    rig.flights.sweep(LONGEST_S)
    assert flight.ended
    assert (rig.flights.without_line, rig.said) == (1, [])


def breaks_off(rig: Rig) -> Flight:
    flight = rig.begin()
    rig.flights.over(flight, 0.0)
    return flight


def breaks_off_in_a_body(rig: Rig) -> Flight:
    flight = rig.begin()
    rig.flights.answered(flight, plain=False)
    flight.in_body = True
    rig.flights.over(flight, 0.0)
    return flight


@pytest.mark.parametrize("end", [breaks_off, breaks_off_in_a_body])
def test_a_stream_that_breaks_off_waits_for_its_line_only_so_long(
    end: Callable[[Rig], Flight], rig: Rig
) -> None:
    rig.heard()
    flight = end(rig)
    rig.flights.sweep(WAIT_S - 1)
    assert not flight.ended
    rig.flights.sweep(WAIT_S)
    assert flight.ended
    assert rig.said == []


def test_the_end_of_a_body_that_the_picker_sees_ends_it_at_once(rig: Rig) -> None:
    flight = rig.begin()
    rig.flights.finished(flight)
    assert flight.ended
    rig.flights.over(flight, 0.0)
    rig.flights.line(flight.mark, "log")
    assert rig.flights.other_lines == 1


def test_a_killed_envoys_requests_end_with_its_access_log_and_no_others(rig: Rig) -> None:
    rig.heard()
    rig.heard("other", "its log")
    flight, other = rig.streamed(), rig.streamed(connection="other")
    rig.flights.log_closed("log", 1.0)
    rig.flights.sweep(WAIT_S)
    assert not flight.ended
    rig.flights.sweep(1.0 + WAIT_S)
    assert flight.ended
    assert not other.ended
    assert rig.said == []


def test_an_access_log_that_comes_again_in_time_keeps_its_requests(rig: Rig) -> None:
    rig.heard()
    flight, ended = rig.streamed(), rig.streamed()
    rig.flights.log_closed("log", 1.0)
    rig.flights.line(ended.mark, "log again")
    rig.flights.sweep(100.0)
    assert not flight.ended


def test_one_of_several_access_logs_of_a_connection_may_close(rig: Rig) -> None:
    rig.heard(log="one")
    rig.heard(log="two")
    flight = rig.streamed()
    rig.flights.log_closed("one", 1.0)
    rig.flights.sweep(100.0)
    assert not flight.ended


@pytest.mark.parametrize(("plain", "after_s"), [(True, WAIT_S), (False, UNHEARD_S)])
def test_without_an_access_log_requests_end_with_their_streams(plain: bool, after_s: float, rig: Rig) -> None:
    first = rig.streamed(plain=plain)
    waiting, open_ = rig.streamed(1.0), rig.begin(1.0)
    rig.flights.sweep(after_s - 0.1)
    assert not first.ended
    rig.flights.sweep(after_s)
    assert first.ended
    assert waiting.ended
    assert not open_.ended
    rig.flights.over(open_, 70.0)
    assert open_.ended
    assert rig.streamed(71.0).ended
    assert rig.said == ["silent"]
    assert rig.flights.silent_connections == 1


def test_a_late_line_shows_that_there_is_an_access_log_after_all(rig: Rig) -> None:
    early = rig.streamed(plain=True)
    rig.begin(1.0)
    rig.flights.sweep(WAIT_S)
    assert rig.said == ["silent"]
    rig.flights.line(early.mark, "log")
    assert rig.said == ["silent", "heard"]
    assert rig.flights.late_lines == 1
    assert not rig.streamed(10.0).ended


def test_what_an_envoy_left_that_is_gone_says_nothing_of_its_access_log(rig: Rig) -> None:
    flight = rig.streamed()
    rig.flights.sweep(UNHEARD_S)
    assert flight.ended
    assert rig.said == []
