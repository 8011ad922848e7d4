"""A ring of replicas chooses as LBCH does on its slots, and counts each request until it is released once."""

from fractions import Fraction

from coresched_ray.replica_ring import ReplicaRing, slot_name
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from coresched.core.ring import LoadBoundedRouter

LABELS = st.sampled_from([f"k{i}" for i in range(6)])
PLACES = st.dictionaries(st.integers(0, 3), st.sampled_from("abcdef"), max_size=4)
"""Replica by slot; a replica that is drawn twice is in the lower one."""


class Replicas(RuleBasedStateMachine):
    @initialize(load_bound=st.sampled_from([1.0, 1.25, 2.0]))
    def make(self, load_bound: float) -> None:
        self.load_bound = load_bound
        self.ring: ReplicaRing[str] = ReplicaRing(load_bound=load_bound)
        self.slots: dict[str, int] = {}
        self.flights: list[str] = []

    def load(self, replica: str) -> int:
        return self.flights.count(replica)

    @rule(places=PLACES)
    def place(self, places: dict[int, str]) -> None:
        self.slots = {}
        for slot in sorted(places):
            self.slots.setdefault(places[slot], slot)
        self.ring.place(self.slots)

    @rule(label=LABELS, tried=st.frozensets(st.sampled_from("abcdef"), max_size=3))
    def route(self, label: str, tried: frozenset[str]) -> None:
        found = self.ring.route(label, tried)
        left = [replica for replica in self.slots if replica not in tried]
        if not left:
            assert found is None
            return
        fresh = LoadBoundedRouter([slot_name(slot) for slot in sorted(self.slots.values())], self.load_bound)
        for flight in self.flights:
            if flight in self.slots:
                fresh.hold(slot_name(self.slots[flight]))
        excluded = [slot_name(self.slots[replica]) for replica in tried if replica in self.slots]
        assert found in left
        assert slot_name(self.slots[found]) == fresh.route(label, excluded)
        if len(left) == len(self.slots):
            total = sum(flight in self.slots for flight in self.flights)
            bound = Fraction(repr(self.load_bound)) * (total + 1) / len(self.slots)
            assert self.load(found) <= bound
        self.flights.append(found)

    @rule(tried=st.frozensets(st.sampled_from("abcdef"), max_size=2))
    def route_without_label(self, tried: frozenset[str]) -> None:
        found = self.ring.route(None, tried)
        left = [replica for replica in self.slots if replica not in tried]
        if not left:
            assert found is None
            return
        assert found in left
        assert self.load(found) == min(map(self.load, left))
        self.flights.append(found)

    @rule(replica=st.sampled_from("abcdef"))
    def hold(self, replica: str) -> None:
        self.ring.hold(replica)
        self.flights.append(replica)

    @precondition(lambda self: self.flights)
    @rule(index=st.integers(0, 1000))
    def release(self, index: int) -> None:
        self.ring.release(self.flights.pop(index % len(self.flights)))

    @rule()
    def counts_are_those_in_flight(self) -> None:
        assert self.ring.in_flight() == {each: self.load(each) for each in set(self.flights)}

    def teardown(self) -> None:
        if hasattr(self, "ring"):
            for flight in self.flights:
                self.ring.release(flight)
            assert self.ring.in_flight() == {}
            assert set(self.ring._router.loads().values()) <= {0}


Replicas.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestReplicaRing = Replicas.TestCase
