"""What a case repeats is steady work: the thousandth operation finds what the first one found."""

from collections.abc import Callable
from typing import Any

import pytest

from bench.cases.caas import discard_and_push, push_and_pop
from bench.cases.lbch import join_and_leave, route_and_release
from bench.cases.passes import EngineRequest, SortedRequests, some_new
from bench.cases.residency import label_moved, turn_again
from bench.cases.rp import admit, order_after_a_label_moved, order_steady
from coresched.core import (
    AttachedOrder,
    ChainAdvancingQueue,
    LoadBoundedRouter,
    ResidencyPolicy,
    RoutingPrefixPolicy,
    TurnGaps,
    Waiting,
)
from coresched.core.reference import (
    ReferenceAttachedOrder,
    ReferencePrefixPolicy,
    ReferenceTurnGaps,
    ReferenceWaiting,
)


def test_route_and_release_keeps_the_requests_in_flight() -> None:
    router = LoadBoundedRouter(["w0", "w1"])
    subject = route_and_release(router, [f"task-{number}" for number in range(40)], ["w0", "w1"] * 5)
    assert sum(router.loads().values()) == 10
    subject(1001)
    assert sum(router.loads().values()) == 10


def test_join_and_leave_keeps_the_workers() -> None:
    router = LoadBoundedRouter(["w0", "w1"])
    join_and_leave(router.add_worker, router.remove_worker)(3)
    assert router.workers() == ["w0", "w1"]


class Recorded:
    """The core's policy, with what each pass was given and gave."""

    def __init__(self, label_capacity: int) -> None:
        self.policy = RoutingPrefixPolicy(label_capacity)
        self.passes: list[tuple[list[Waiting], list[Waiting]]] = []
        self.asked = 0

    def order(self, waiting: list[Waiting], prefix_hit: Callable[[Waiting], int]) -> list[Waiting]:
        def counted(request: Waiting) -> int:
            self.asked += 1
            return prefix_hit(request)

        self.passes.append((list(waiting), self.policy.order(waiting, counted)))
        return list(self.passes[-1][1])

    def admitted(self, label: str) -> None:
        self.policy.admitted(label)


def test_a_steady_queue_stays_in_order_and_half_of_it_is_warm() -> None:
    policy = Recorded(16)
    subject = order_steady(policy, Waiting, 32)
    subject(5)
    first, *later = policy.passes
    assert first[0] != first[1]
    assert all(given == ordered == first[1] for given, ordered in later)
    assert policy.asked == 16


def test_one_label_enters_and_one_leaves_before_each_pass() -> None:
    policy = Recorded(16)
    subject = order_after_a_label_moved(policy, Waiting, 32)
    assert policy.asked == 32
    for _ in range(70):
        before = set(policy.policy.labels())
        subject(1)
        after = set(policy.policy.labels())
        assert len(after - before) == len(before - after) == 1
        given, ordered = policy.passes[-1]
        assert given != ordered
        assert sorted(one.id for one in given) == sorted(one.id for one in ordered)
    assert policy.asked == 32


def test_touching_changes_no_label_and_entering_changes_one_each_time() -> None:
    policy = RoutingPrefixPolicy(10)
    touch = admit(policy, None, 10)
    before = set(policy.labels())
    touch(7)
    assert set(policy.labels()) == before

    policy = RoutingPrefixPolicy(10)
    enter = admit(policy, None, 20)
    for _ in range(40):
        before = set(policy.labels())
        enter(1)
        assert len(set(policy.labels()) - before) == 1


@pytest.mark.parametrize("new", [0, 1, 10, 100])
def test_a_pass_with_some_new_asks_their_hits_and_keeps_the_queue(new: int) -> None:
    policy = RoutingPrefixPolicy(100)
    order = AttachedOrder(policy, "waiting")
    queues: list[list[EngineRequest]] = []

    class Noted:
        def order(self, requests: list[Any], enter: Any, prefix_hit: Any) -> bool:
            queues.append(list(requests))
            return order.order(requests, enter, prefix_hit)

    subject = some_new(Noted(), policy, Waiting, 300, new)
    asked = order.queries
    assert asked == 100
    subject(7)
    assert order.queries - asked == 7 * new
    assert {len(queue) for queue in queues} == {300}
    ages = [request.arrived_at for request in queues[-1][300 - new :]]
    assert ages == sorted(ages)
    assert not set(queues[-1][300 - new :]) & set(queues[-2])


class Remembered:
    """An order, with the labels as each pass left them."""

    def __init__(self, order: Any) -> None:
        self.order_of = order
        self.passes: list[list[str]] = []

    def order(self, requests: list[Any], enter: Any, prefix_hit: Any) -> bool:
        self.order_of.order(requests, enter, prefix_hit)
        self.passes.append([request.label for request in requests])
        return True


def test_a_plain_pass_orders_as_the_core_and_the_twin() -> None:
    policies = (RoutingPrefixPolicy(100), ReferencePrefixPolicy(100), SortedRequests(100))
    orders = (
        Remembered(AttachedOrder(policies[0], "waiting")),
        Remembered(ReferenceAttachedOrder(policies[1], "waiting")),
        Remembered(policies[2]),
    )
    for order, policy, kind in zip(orders, policies, (Waiting, ReferenceWaiting, None), strict=True):
        some_new(order, policy, kind, 300, 10)(5)
    assert orders[0].passes == orders[1].passes == orders[2].passes
    assert orders[0].passes[-1][90:100] == [f"task-new-{number}" for number in range(10)]


def test_one_trajectory_enters_the_cache_and_one_leaves_it_before_each_pass() -> None:
    policy = ResidencyPolicy()
    subject = label_moved(policy, Waiting, 40)
    for _ in range(50):
        before = policy.labels()
        subject(1)
        assert len(policy.labels()) == len(before) == 20
        assert len(policy.labels() - before) == 1


def test_every_trajectory_is_in_a_gap_again_after_its_turn() -> None:
    gaps, twin = TurnGaps(), ReferenceTurnGaps()
    turn_again(gaps, 50)(200)
    turn_again(twin, 50)(200)
    assert gaps.limit == twin.limit > 0


def test_the_environment_queue_keeps_its_length() -> None:
    jobs = ChainAdvancingQueue()
    subject = push_and_pop(jobs, 100)
    assert len(jobs) == 100
    subject(1500)
    assert len(jobs) == 100

    jobs = ChainAdvancingQueue()
    subject = discard_and_push(jobs, 100)
    subject(1500)
    assert len(jobs) == 100
    assert {jobs.pop() for _ in range(100)} == {f"job-{number}" for number in range(100)}
