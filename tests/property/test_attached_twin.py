"""The compiled order of an engine's own requests orders, asks and remembers as its twin."""

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coresched.core import AttachedOrder, RoutingPrefixPolicy, Waiting
from coresched.core.reference import ReferenceAttachedOrder, ReferencePrefixPolicy, ReferenceWaiting

LABELS = st.one_of(st.none(), st.sampled_from([f"k{i}" for i in range(6)]))
TIMES = st.sampled_from([-1.0, 0.0, 0.5, 2.0])
RANKS = st.sampled_from([-(2**63), -1, 0, 3, 2**63 - 1])


@dataclass(eq=False)
class EngineRequest:
    number: int
    label: str | None
    arrived_at: float
    priority: int


class AttachedOrders(RuleBasedStateMachine):
    """The same requests in two engines' lists, one ordered by the compiled class and one by its twin."""

    @initialize(
        capacity=st.integers(1, 5),
        rank=st.sampled_from([None, "priority"]),
        highest_rank_first=st.booleans(),
    )
    def make(self, capacity: int, rank: str | None, highest_rank_first: bool) -> None:
        options: dict[str, Any] = {"rank": rank, "highest_rank_first": highest_rank_first}
        self.policies = (RoutingPrefixPolicy(capacity), ReferencePrefixPolicy(capacity))
        self.orders: tuple[Any, Any] = (
            AttachedOrder(self.policies[0], "waiting", **options),
            ReferenceAttachedOrder(self.policies[1], "waiting", **options),
        )
        self.queues: tuple[list[EngineRequest], list[EngineRequest]] = ([], [])

    @rule(entries=st.lists(st.tuples(LABELS, TIMES, RANKS), min_size=1, max_size=8))
    def arrive(self, entries: list[tuple[str | None, float, int]]) -> None:
        for entry in entries:
            number = len(self.queues[0])
            for queue in self.queues:
                queue.append(EngineRequest(number, *entry))

    @rule(data=st.data())
    def stand_twice(self, data: st.DataObject) -> None:
        if self.queues[0]:
            place = data.draw(st.integers(0, len(self.queues[0]) - 1))
            for queue in self.queues:
                queue.append(queue[place])

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.queues[0]:
            place = data.draw(st.integers(0, len(self.queues[0]) - 1))
            for queue in self.queues:
                del queue[place]

    @rule(labels=st.lists(LABELS, min_size=1, max_size=4))
    def admit(self, labels: list[str | None]) -> None:
        for label in labels:
            for policy in self.policies:
                policy.admitted(label)

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        if self.queues[0]:
            place = data.draw(st.integers(0, len(self.queues[0]) - 1))
            for queue in self.queues:
                vars(queue[place]).pop("waiting", None)

    @rule(data=st.data())
    def rank(self, data: st.DataObject) -> None:
        if self.queues[0]:
            place, rank = data.draw(st.tuples(st.integers(0, len(self.queues[0]) - 1), RANKS))
            for queue in self.queues:
                queue[place].priority = rank

    @rule(longest=st.integers(0, 3), raise_at=st.integers(0, 12))
    def order(self, longest: int, raise_at: int) -> None:
        def outcome(order: Any, queue: list[EngineRequest], kind: Any) -> tuple[list[object], object]:
            """What was called, and what was returned or raised."""
            called: list[object] = []

            def noted(call: str, request: EngineRequest) -> None:
                called.append((call, request.number))
                if len(called) == raise_at:
                    raise ZeroDivisionError

            def enter(request: EngineRequest) -> Any:
                noted("enter", request)
                return kind(str(request.number), request.label, request.arrived_at)

            def prefix_hit(request: EngineRequest) -> int:
                noted("prefix_hit", request)
                return request.number % (longest + 1)

            try:
                return called, order.order(queue, enter, prefix_hit)
            except ZeroDivisionError as error:
                return called, type(error)

        ours = outcome(self.orders[0], self.queues[0], Waiting)
        assert ours == outcome(self.orders[1], self.queues[1], ReferenceWaiting)

    @invariant()
    def same(self) -> None:
        ours, theirs = self.queues
        assert [request.number for request in ours] == [request.number for request in theirs]
        compiled, twin = self.orders
        assert (compiled.passes, compiled.queries, compiled.changed) == (
            twin.passes,
            twin.queries,
            twin.changed,
        )


TestAttachedOrders = AttachedOrders.TestCase
TestAttachedOrders.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)
