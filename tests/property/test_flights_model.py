"""Whatever Envoy says, in whatever order, each request counts on one worker and its count ends once."""

from collections import Counter
from typing import Any

from coresched_envoy.endpoints import Endpoint
from coresched_envoy.flights import UNHEARD_S, Flight, Flights
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coresched.gateway.workers import Worker

WORKERS: list[Worker] = [Endpoint(f"10.0.0.{number}:1") for number in range(3)]
LOGS = st.sampled_from(["log-0", "log-1", "log-2"])
WAIT_S, LONGEST_S = 5.0, 300.0


class Events(RuleBasedStateMachine):
    @initialize()
    def make(self) -> None:
        self.now = 0.0
        self.loads: Counter[Worker] = Counter()
        self.told: Counter[str] = Counter()
        self.flights = Flights(
            release=self.release,
            wait_s=WAIT_S,
            longest_s=LONGEST_S,
            silent=lambda name: self.told.update([name]),
            heard=lambda name: self.told.subtract([name]),
        )
        self.begun: list[Flight] = []
        self.streaming: list[Flight] = []
        self.settled: set[Flight] = set()  # by a line or the end of a body: further lines say nothing new

    def release(self, worker: Worker) -> None:
        assert self.loads[worker] > 0
        self.loads[worker] -= 1

    def one(self, data: Any, flights: list[Flight]) -> Flight | None:
        return data.draw(st.sampled_from(flights)) if flights else None

    @rule(worker=st.sampled_from(WORKERS), connection=st.sampled_from(["a", "b"]))
    def begin(self, worker: Worker, connection: str) -> None:
        self.loads[worker] += 1
        flight = self.flights.begin(worker, connection, self.now)
        self.begun.append(flight)
        self.streaming.append(flight)

    @rule(data=st.data(), plain=st.booleans(), in_body=st.booleans())
    def headers(self, data: Any, plain: bool, in_body: bool) -> None:
        if flight := self.one(data, self.streaming):
            self.flights.answered(flight, plain=plain)
            flight.in_body = in_body

    @rule(data=st.data(), to=st.sampled_from(WORKERS))
    def served_elsewhere(self, data: Any, to: Worker) -> None:
        flight = self.one(data, self.streaming)
        if flight is not None and not flight.ended:
            self.loads[to] += 1
            self.release(flight.worker)
            flight.worker = to

    @rule(data=st.data())
    def end_of_body(self, data: Any) -> None:
        if flight := self.one(data, self.streaming):
            if not flight.ended:
                self.settled.add(flight)
            self.flights.finished(flight)

    @rule(data=st.data())
    def stream_ends(self, data: Any) -> None:
        if flight := self.one(data, self.streaming):
            self.streaming.remove(flight)
            self.flights.over(flight, self.now)

    @rule(data=st.data(), log=LOGS)
    def line(self, data: Any, log: str) -> None:
        """Also again, early, and of what a rule has ended."""
        if flight := self.one(data, self.begun):
            self.flights.line(flight.mark, log)
            assert flight.ended
            assert flight in self.settled or not flight.connection.silent
            self.settled.add(flight)

    @rule(mark=st.sampled_from(["", "another-life-1"]), log=LOGS)
    def line_of_none(self, mark: str, log: str) -> None:
        before = len(self.flights)
        self.flights.line(mark, log)
        assert len(self.flights) == before

    @rule(log=LOGS)
    def log_closes(self, log: str) -> None:
        self.flights.log_closed(log, self.now)

    @rule(seconds=st.sampled_from([0.1, WAIT_S, UNHEARD_S, LONGEST_S]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.flights.sweep(self.now)

    @invariant()
    def counts_are_of_the_flights(self) -> None:
        open_ = [flight for flight in self.begun if not flight.ended]
        assert len(self.flights) == len(open_)
        assert +self.loads == Counter(flight.worker for flight in open_)
        assert set(self.told.values()) <= {0, 1}
        assert self.flights.silent_connections == sum(self.told.values())

    def teardown(self) -> None:
        for flight in self.streaming:
            self.flights.over(flight, self.now)
        self.flights.sweep(self.now + LONGEST_S)
        assert len(self.flights) == 0
        assert not +self.loads


TestEvents = Events.TestCase
TestEvents.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
