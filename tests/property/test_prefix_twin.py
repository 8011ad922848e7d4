"""The compiled routing-prefix policy orders, asks and remembers as its twin."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coresched.core import RoutingPrefixPolicy, Waiting
from coresched.core.reference import ReferencePrefixPolicy, ReferenceWaiting

LABELS = st.one_of(st.none(), st.sampled_from([f"k{i}" for i in range(9)]))
TIMES = st.sampled_from([-1.0, 0.0, 0.5, 2.0])


class PrefixPolicies(RuleBasedStateMachine):
    """Two policies share the requests, as when a request moves between the workers of one process."""

    @initialize(capacities=st.tuples(st.integers(1, 6), st.integers(1, 6)))
    def make(self, capacities: tuple[int, int]) -> None:
        self.policies = [RoutingPrefixPolicy(capacity) for capacity in capacities]
        self.twins = [ReferencePrefixPolicy(capacity) for capacity in capacities]
        self.requests: list[Waiting] = []
        self.twin_requests: list[ReferenceWaiting] = []

    @rule(entries=st.lists(st.tuples(LABELS, TIMES), min_size=1, max_size=6))
    def enter(self, entries: list[tuple[str | None, float]]) -> None:
        for label, queued_at in entries:
            id = str(len(self.requests))
            self.requests.append(Waiting(id, label, queued_at))
            self.twin_requests.append(ReferenceWaiting(id, label, queued_at))

    @rule(which=st.integers(0, 1), labels=st.lists(LABELS, min_size=1, max_size=4))
    def admit(self, which: int, labels: list[str | None]) -> None:
        for label in labels:
            self.policies[which].admitted(label)
            self.twins[which].admitted(label)

    @rule(which=st.integers(0, 1), label=LABELS)
    def forget(self, which: int, label: str | None) -> None:
        if label is not None:
            self.policies[which].forget(label)
            self.twins[which].forget(label)

    @rule(which=st.integers(0, 1), data=st.data(), hit=st.integers(0, 3), raise_at=st.integers(0, 12))
    def order(self, which: int, data: st.DataObject, hit: int, raise_at: int) -> None:
        places = data.draw(st.lists(st.integers(0, max(0, len(self.requests) - 1)), max_size=20))

        def outcome(policy: Any, requests: Any) -> tuple[list[str], object]:
            """The ids asked for, and the ids in order or what was raised."""
            asked: list[str] = []

            def prefix_hit(request: Any) -> int:
                asked.append(request.id)
                if len(asked) == raise_at:
                    raise ZeroDivisionError
                return (int(request.id) * 7 + hit) % 4

            try:
                waiting = [requests[place] for place in places] if requests else []
                return asked, [request.id for request in policy.order(waiting, prefix_hit)]
            except ZeroDivisionError as error:
                return asked, type(error)

        ours = outcome(self.policies[which], self.requests)
        assert ours == outcome(self.twins[which], self.twin_requests)

    @rule(which=st.integers(0, 1))
    def order_all(self, which: int) -> None:
        ordered = self.policies[which].order(self.requests, lambda request: int(request.id) % 3)
        expected = self.twins[which].order(self.twin_requests, lambda request: int(request.id) % 3)
        assert [request.id for request in ordered] == [request.id for request in expected]

    @invariant()
    def same(self) -> None:
        assert [request.hit for request in self.requests] == [request.hit for request in self.twin_requests]
        for policy, twin in zip(self.policies, self.twins, strict=True):
            assert policy.labels() == twin.labels()
            assert all((label in policy) == (label in twin) for label in ("k0", "k8", "unseen"))


TestPrefixPolicies = PrefixPolicies.TestCase
TestPrefixPolicies.settings = settings(max_examples=120, stateful_step_count=60, deadline=None)


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.booleans(), st.integers(0, 3), st.sampled_from([0.0, 1.0, 2.0])), max_size=300
    ),
    moved=st.lists(st.tuples(st.integers(0, 299), st.integers(0, 299)), max_size=12),
)
def test_any_list_is_sorted_stably(rows: list[tuple[bool, int, float]], moved: list[tuple[int, int]]) -> None:
    policy = RoutingPrefixPolicy(1)
    policy.admitted("k")
    hits = {str(i): hit for i, (_, hit, _) in enumerate(rows)}
    waiting = [Waiting(str(i), "k" if member else None, at) for i, (member, _, at) in enumerate(rows)]

    def key(request: Waiting) -> tuple[int, int, float]:
        return (0, -hits[request.id], request.queued_at) if request.label else (1, 0, request.queued_at)

    ordered = policy.order(waiting, lambda request: hits[request.id])
    assert ordered == sorted(waiting, key=key)
    # Then a nearly sorted list, as the next pass finds it.
    for source, target in moved:
        if source < len(ordered):
            ordered.insert(target, ordered.pop(source))
    assert policy.order(ordered, lambda request: -1) == sorted(ordered, key=key)
