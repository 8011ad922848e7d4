"""Each order's rule, on waiting queues made by hand."""

from collections.abc import Mapping, Sequence
from typing import get_args

import pytest
from simulated import outcome_of, settings, small_model, trajectory

from coresched.lab.simulator.orders.order import Order, Request
from coresched.lab.simulator.orders.registry import PLAIN_ORDERS
from coresched.lab.simulator.settings import ORDERS, WORKER_POLICIES, PlainOrder

ALONE = 1_000
"""Groups from here on are of one request each."""


class Queue:
    """One order, and the requests that wait."""

    def __init__(self, name: str) -> None:
        self.order: Order = PLAIN_ORDERS[name]()
        self.requests: dict[str, Request] = {}
        self.waiting: list[Request] = []
        self.asked: list[str] = []

    def arrive(
        self, label: str | None, t: float = 0.0, prompt: int = 100, group: int | None = None, shared: int = 0
    ) -> Request:
        number = len(self.requests)
        request = Request(number, label, t, prompt, ALONE + number if group is None else group, shared)
        self.requests[label or f"#{number}"] = request
        self.waiting.append(request)
        self.order.arrived(request)
        return request

    def arrange(self, hits: Mapping[str, int] | None = None, now: float = 0.0) -> list[str]:
        names = {request: name for name, request in self.requests.items()}

        def prefix_hit(request: Request) -> int:
            self.asked.append(names[request])
            return (hits or {}).get(names[request], 0)

        found = self.order.arrange(self.waiting, prefix_hit, now)
        if found is not None:
            assert sorted(map(id, found)) == sorted(map(id, self.waiting))
            self.waiting = list(found)
        return [names[request] for request in self.waiting]

    def admit(self, *labels: str, t: float = 0.0) -> None:
        for label in labels:
            self.waiting.remove(self.requests[label])
            self.order.admitted(self.requests[label], t)

    def serve(self, label: str, arrived: float, admitted: float, ended: float) -> None:
        """A turn of this trajectory from end to end."""
        request = self.arrive(label, arrived)
        self.admit(label, t=admitted)
        self.order.ended(request, ended)


def names(queue: Sequence[str]) -> str:
    return "".join(queue)


def test_every_order_has_a_name_of_its_own() -> None:
    assert tuple(PLAIN_ORDERS) == get_args(PlainOrder)
    assert (*WORKER_POLICIES, *PLAIN_ORDERS) == ORDERS
    assert len(set(ORDERS)) == len(ORDERS)


@pytest.mark.parametrize("order", PLAIN_ORDERS)
def test_a_run_is_the_same_again_and_everyone_is_served(order: str) -> None:
    turns = [(30, 1.0, 60), (20, 2.0, 40), (40, 0.5, 30), (10, None, 0)]
    batch = [
        trajectory(f"t{number}", turns[number % 3 :], prompt=100 + 40 * number, group="g")
        for number in range(30)
    ]
    run = settings(worker_policy=order, sample_concurrency=25)
    model = small_model(max_running_requests=3)
    first = outcome_of(batch, run, model)
    assert first == outcome_of(batch, run, model)
    assert len(first.completed_s) == len(batch)
    assert first.priority_s > 0


def test_hrrn_divides_the_tokens_since_arrival_by_those_to_compute() -> None:
    queue = Queue("hrrn")
    queue.arrive("a", prompt=1_000)
    queue.order.prefilled(600)
    queue.arrive("b", prompt=300)
    queue.order.prefilled(400)
    # a: 1000 / 1000 against b: 400 / 300
    assert names(queue.arrange()) == "ba"
    # a: 1000 / 500 against b: 400 / 290
    assert names(queue.arrange({"a": 500, "b": 10})) == "ab"
    assert names(queue.asked) == "abba"


def test_hrrn_leaves_a_long_queue_as_it_is_and_asks_nothing() -> None:
    queue = Queue("hrrn")
    for number in range(128):
        queue.arrive(f"{number}", prompt=1_000 - number)
    queue.order.prefilled(100)
    assert queue.arrange()[0] == "127"
    assert len(queue.asked) == 128
    queue.arrive("new", prompt=1)
    assert queue.arrange()[-1] == "new"
    assert len(queue.asked) == 128


@pytest.mark.parametrize("order", ["hrrn", "shortest-prefill-first"])
def test_cold_prompts_that_begin_like_one_before_them_go_last(order: str) -> None:
    queue = Queue(order)
    for name in "abc":
        queue.arrive(name, prompt=100, group=1, shared=32)
    queue.arrive("d", prompt=900, group=1, shared=32)
    queue.arrive("e", prompt=200, group=2, shared=31)
    queue.arrive("f", prompt=200, group=2, shared=31)
    # b has more cached than a cold one, so that it neither leads nor follows.
    assert (
        names(queue.arrange({"b": 33, "d": 32}))
        == {
            "hrrn": "abefcd",
            "shortest-prefill-first": "baefcd",
        }[order]
    )


def test_shortest_prefill_first_takes_the_oldest_of_equal_ones() -> None:
    queue = Queue("shortest-prefill-first")
    queue.arrive("a", t=2, prompt=500)
    queue.arrive("b", t=1, prompt=100)
    queue.arrive("c", t=0, prompt=300)
    assert names(queue.arrange({"a": 400, "c": 100})) == "bac"


def test_routing_key_puts_running_labels_first_and_the_others_by_label() -> None:
    queue = Queue("routing-key")
    for name in ("d", "c", "b", "a"):
        queue.arrive(name)
    assert names(queue.arrange()) == "dcba"  # nothing runs
    queue.admit("a", "d")
    again = queue.arrive("d")
    queue.arrive("a")
    assert names(queue.arrange()) == "adbc"
    queue.order.admitted(again, 0.0)
    queue.waiting.remove(again)
    queue.arrive("d")
    assert names(queue.arrange()) == "dabc"  # two of d run
    assert queue.asked == []


def test_routing_key_counts_what_has_ended_no_more() -> None:
    queue = Queue("routing-key")
    first = queue.arrive("z")
    other = queue.arrive("y")
    queue.admit("z", "y")
    queue.order.ended(first, 1.0)
    queue.arrive("b")
    queue.arrive("z")
    queue.arrive("a")
    assert names(queue.arrange()) == "abz"
    queue.order.ended(other, 2.0)
    queue.arrive("0")
    assert names(queue.arrange()) == "abz0"  # nothing runs: left as it is


def test_plas_serves_the_least_served_band_and_within_it_in_turn() -> None:
    queue = Queue("plas")
    queue.serve("a", arrived=0, admitted=0, ended=5)  # 5 s: 4 to 8
    queue.serve("b", arrived=0, admitted=0, ended=7)
    queue.serve("c", arrived=0, admitted=0, ended=3)  # 2 to 4
    for t, name in enumerate("bacn", start=10):
        queue.arrive(name, t)
    assert names(queue.arrange(now=14)) == "ncba"
    assert queue.asked == []


def test_plas_moves_a_starved_turn_to_the_end_of_the_first_queue() -> None:
    queue = Queue("plas")
    queue.serve("a", arrived=0, admitted=4, ended=14)  # waited 4 s, served 10 s
    queue.serve("b", arrived=0, admitted=0, ended=10)
    queue.arrive("a", 20)
    queue.arrive("b", 20)
    queue.arrive("n", 21)
    assert names(queue.arrange(now=95.9)) == "nab"  # 4 + 75.9 < 8 * 10
    assert names(queue.arrange(now=96)) == "nab"  # in the first queue since 96, after n
    queue.arrive("m", 97)
    assert names(queue.arrange(now=98)) == "namb"
    queue.admit("n", "a", "m", "b", t=100)
    queue.order.ended(queue.requests["a"], 101)
    # a's wait counts from 96 on, so 4 + 4 s in all over 11 s of service.
    queue.arrive("a", 102)
    queue.arrive("k", 180)
    assert names(queue.arrange(now=181)) == "ka"
    assert names(queue.arrange(now=183)) == "ka"
    queue.arrive("j", 184)
    assert names(queue.arrange(now=185)) == "kaj"


def test_program_fcfs_goes_by_the_first_turn_of_a_trajectory() -> None:
    queue = Queue("program-fcfs")
    queue.serve("late", arrived=2, admitted=3, ended=4)
    queue.serve("early", arrived=1, admitted=3, ended=4)
    queue.arrive(None, 4)
    queue.arrive("new", 5)
    queue.arrive("late", 6)
    queue.arrive("early", 7)
    assert queue.arrange(now=8) == ["early", "late", "#2", "new"]
    assert queue.asked == []


def test_peek_warms_a_shared_prefix_once_before_its_others_and_keeps_groups_together() -> None:
    queue = Queue("peek")
    for t, (name, group, shared) in enumerate(
        [("a", 1, 40), ("b", 2, 300), ("c", 1, 40), ("d", 2, 300), ("e", 2, 300), ("f", 1, 40)]
    ):
        queue.arrive(name, t, prompt=900, group=group, shared=shared)
    # Cached e, then the leaders a and b: b's group is larger; so are its followers. Shares are 0.745 and
    # 0.255, so that every fourth pick or so is the oldest left of the best section.
    assert names(queue.arrange({"e": 500}, now=6)) == "ebadcf"
    assert sorted(queue.asked) == list("abcdef")


def test_peek_gives_the_oldest_a_share_that_grows_with_lone_requests_that_wait() -> None:
    def order(now: float) -> str:
        queue = Queue("peek")
        for t, (name, group) in enumerate([("a", None), ("b", None), ("x", 1), ("y", 1)]):
            queue.arrive(name, t * 0.01, prompt=900, group=group, shared=0 if group is None else 64)
        hits = {"x": 300, "y": 400, "a": 100, "b": 200}
        for _ in range(20):
            found = names(queue.arrange(hits, now=now))
        return found

    # Half of them share nothing: 0.4 of the picks, and 0.6 when these have waited for 2 s.
    assert order(0.03) == "yaxb"
    assert order(9.0) == "aybx"


def test_peek_is_lpm_where_nothing_is_shared() -> None:
    queue = Queue("peek")
    for number in range(128):
        queue.arrive(f"{number}")
    assert queue.arrange({"5": 9, "7": 90})[:3] == ["7", "5", "0"]
    queue.arrive("new")
    assert queue.arrange({"new": 99})[-1] == "new"
