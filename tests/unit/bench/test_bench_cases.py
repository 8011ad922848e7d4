"""What a case repeats is steady work: the thousandth operation finds what the first one found."""

from collections.abc import Callable

from bench.cases.caas import discard_and_push, push_and_pop
from bench.cases.lbch import join_and_leave, route_and_release
from bench.cases.rp import admit, order_after_a_label_moved, order_steady
from coresched.core import ChainAdvancingQueue, LoadBoundedRouter, RoutingPrefixPolicy, Waiting


def test_route_and_release_keeps_the_requests_in_flight() -> None:
    router = LoadBoundedRouter(["w0", "w1"])
    subject = route_and_release(router, [f"task-{number}" for number in range(40)])
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
