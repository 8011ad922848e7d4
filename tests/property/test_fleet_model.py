"""Whoever joins, leaves, fails or takes another's request: a fleet counts what is in flight."""

from typing import Any

import pytest
from coresched_envoy.endpoints import Endpoint
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coresched.core.imbalance import RequestImbalance
from coresched.core.routers import RouterName
from coresched.gateway.fleet import Fleet, NoWorkerError
from coresched.gateway.workers import Worker

NAMES = [f"10.0.0.{number}:1" for number in range(4)]
NAME = st.sampled_from(NAMES)
LABELS = st.sampled_from([f"task-{number}" for number in range(5)])


class Lives(RuleBasedStateMachine):
    @initialize(router=st.sampled_from(["lbch", "sticky-bounded"]))
    def make(self, router: RouterName) -> None:
        self.fleet = Fleet([Endpoint(name) for name in NAMES[:2]], router=router, failures_to_out=1)
        self.flights: list[Worker] = []

    @rule(label=LABELS, exclude=st.sets(NAME, max_size=2))
    def place(self, label: str, exclude: set[str]) -> None:
        there = {worker.name for worker in self.fleet.workers}
        may = {worker.name for worker in self.fleet.workers if worker.healthy} - exclude
        if not may:
            with pytest.raises(NoWorkerError):
                self.fleet.place_in_order(label, exclude & there)
            return
        order = self.fleet.place_in_order(label, exclude & there)
        assert {worker.name for worker in order} == may
        assert len(order) == len(may)
        self.flights.append(order[0])

    @rule(label=LABELS)
    def route(self, label: str) -> None:
        if self.fleet.healthy():
            self.flights.append(self.fleet.route(label))

    @rule(data=st.data())
    def release(self, data: Any) -> None:
        if self.flights:
            worker = self.flights.pop(data.draw(st.integers(0, len(self.flights) - 1)))
            self.fleet.release(worker)

    @rule(data=st.data())
    def move(self, data: Any) -> None:
        if self.flights and self.fleet.workers:
            place = data.draw(st.integers(0, len(self.flights) - 1))
            to = data.draw(st.sampled_from(self.fleet.workers))
            self.fleet.move(self.flights[place], to)
            self.flights[place] = to

    @rule(name=NAME, weight=st.sampled_from([0.5, 1.0, 2.0]), healthy=st.booleans())
    def add(self, name: str, weight: float, healthy: bool) -> None:
        fresh = Endpoint(name, weight, healthy)
        if self.fleet.get(name) is not None:
            with pytest.raises(ValueError, match="once only"):
                self.fleet.add(fresh)
            return
        added = self.fleet.add(fresh)
        assert self.fleet.get(name) is added
        assert (added.weight, added.healthy) == (weight, healthy)

    @rule(name=NAME)
    def remove(self, name: str) -> None:
        worker = self.fleet.get(name)
        if worker is not None:
            self.fleet.remove(worker)

    @rule(name=NAME, healthy=st.booleans())
    def check(self, name: str, healthy: bool) -> None:
        worker = self.fleet.get(name)
        if worker is not None and healthy:
            worker.recheck.clear()
            self.fleet.check_passed(worker)
        elif worker is not None:
            self.fleet.unreachable(worker, "refused")

    @invariant()
    def counts_are_of_what_is_in_flight(self) -> None:
        names = [worker.name for worker in self.flights]
        assert self.fleet.in_flight() == {
            worker.name: names.count(worker.name) for worker in self.fleet.workers
        }
        for worker in (*self.fleet.workers, *self.flights):
            assert worker.in_flight == names.count(worker.name)
        healthy = [worker for worker in self.fleet.workers if worker.healthy]
        assert self.fleet.healthy() == len(healthy)
        anew = RequestImbalance([worker.in_flight for worker in healthy])
        assert self.fleet.imbalance().present == anew.present

    def teardown(self) -> None:
        for worker in self.flights:
            self.fleet.release(worker)
        assert set(self.fleet.in_flight().values()) <= {0}


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
