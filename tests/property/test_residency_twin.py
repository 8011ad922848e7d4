"""The compiled residency policy and gaps do as their twins, also beside RP on the same requests."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coresched.core import AttachedOrder, ResidencyPolicy, RoutingPrefixPolicy, TurnGaps, Waiting
from coresched.core.reference import (
    ReferencePrefixPolicy,
    ReferenceResidencyPolicy,
    ReferenceTurnGaps,
    ReferenceWaiting,
)

LABELS = st.sampled_from([f"k{i}" for i in range(6)])


class Request:
    def __init__(self, id: str, label: str | None, at: float) -> None:
        self.id, self.label, self.at = id, label, at


class ResidencyPolicies(RuleBasedStateMachine):
    @initialize()
    def make(self) -> None:
        self.policy, self.twin = ResidencyPolicy(), ReferenceResidencyPolicy()
        self.prefix, self.prefix_twin = RoutingPrefixPolicy(3), ReferencePrefixPolicy(3)
        self.attached = AttachedOrder(self.policy, "_waiting")
        self.waiting: list[Waiting] = []
        self.twin_waiting: list[ReferenceWaiting] = []
        self.queue: list[Request] = []

    @rule(labels=st.lists(st.one_of(st.none(), LABELS), max_size=5), at=st.sampled_from([0.0, 1.0, 2.0]))
    def enter(self, labels: list[str | None], at: float) -> None:
        for label in labels:
            id = str(len(self.waiting))
            self.waiting.append(Waiting(id, label, at))
            self.twin_waiting.append(ReferenceWaiting(id, label, at))
            self.queue.append(Request(id, label, at))

    @rule(label=LABELS)
    def resident(self, label: str) -> None:
        self.policy.resident(label)
        self.twin.resident(label)

    @rule(label=LABELS)
    def evicted(self, label: str) -> None:
        self.policy.evicted(label)
        self.twin.evicted(label)

    @rule()
    def clear(self) -> None:
        self.policy.clear()
        self.twin.clear()

    @rule(label=LABELS)
    def prefix_orders_the_same_requests(self, label: str) -> None:
        def hit(request: Any) -> int:
            return int(request.id) % 3

        self.prefix.admitted(label)
        self.prefix_twin.admitted(label)
        ordered = self.prefix.order(self.waiting, hit)
        assert [each.id for each in ordered] == [
            each.id for each in self.prefix_twin.order(self.twin_waiting, hit)
        ]

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.queue:
            del self.queue[data.draw(st.integers(0, len(self.queue) - 1))]

    @rule()
    def order_in_place(self) -> None:
        def key(request: Request) -> tuple[bool, float]:
            return request.label not in self.twin, request.at

        expected = sorted(self.queue, key=key)
        changes = expected != self.queue
        assert self.attached.order(self.queue, lambda one: Waiting(one.id, one.label, one.at)) is changes
        assert self.queue == expected

    @invariant()
    def same(self) -> None:
        ordered = [each.id for each in self.policy.order(self.waiting)]
        assert ordered == [each.id for each in self.twin.order(self.twin_waiting)]
        assert self.policy.labels() == self.twin.labels()
        assert len(self.policy) == len(self.twin)


class Gaps(RuleBasedStateMachine):
    @initialize(probability=st.sampled_from([0.05, 0.25, 0.5, 1]), window=st.integers(1, 70))
    def make(self, probability: float, window: int) -> None:
        self.gaps = TurnGaps(probability, window)
        self.twin = ReferenceTurnGaps(probability, window)
        self.now = 0

    @rule(labels=st.lists(LABELS, min_size=1, max_size=12), step=st.integers(0, 9))
    def ended(self, labels: list[str], step: int) -> None:
        self.now += step
        for label in labels:
            self.gaps.ended(label, self.now)
            self.twin.ended(label, self.now)

    @rule(label=LABELS, step=st.integers(0, 9))
    def began(self, label: str, step: int) -> None:
        self.now += step
        self.gaps.began(label, self.now)
        self.twin.began(label, self.now)

    @rule(label=LABELS)
    def forget(self, label: str) -> None:
        self.gaps.forget(label)
        self.twin.forget(label)

    @rule()
    def same(self) -> None:
        assert self.gaps.limit == self.twin.limit
        for label in ("k0", "k1", "k2", "unseen"):
            assert self.gaps.expected(label, self.now) == self.twin.expected(label, self.now)


TestResidencyPolicies = ResidencyPolicies.TestCase
TestResidencyPolicies.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestTurnGaps = Gaps.TestCase
TestTurnGaps.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
