"""RP on SGLang's queue: who counts as admitted, what a request keeps, and labels that cannot be labels."""

import logging
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from coresched_engine.labels import UNLABELLED_BEFORE_WARNING
from coresched_sglang.routing_prefix import RoutingPrefix


@dataclass(eq=False)
class Request:
    rid: str
    routing_key: Any = None
    priority: Any = None
    num_matched_prefix_tokens: int = 0


@dataclass
class Scheduler:
    """SGLang's part: a queue that is replaced where requests leave it, and a plan of what runs next."""

    hits: dict[str, int] = field(default_factory=dict)
    label_capacity: int = 8
    options: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.matched: list[str] = []
        self.queue: list[Request] = []
        self.ordering = RoutingPrefix(self.label_capacity, self.match, **self.options)

    def match(self, request: Request) -> None:
        self.matched.append(request.rid)
        request.num_matched_prefix_tokens = self.hits.get(request.rid, 0)

    def order(self) -> list[str]:
        self.ordering.order(self.queue)
        return [request.rid for request in self.queue]

    def admit(self, admitted: int, *, before: Any = (), after: Any = ()) -> None:
        """The next ``admitted`` of the queue run, between requests that were admitted earlier."""
        batch = [*before, *self.queue[:admitted], *after]
        self.queue = self.queue[admitted:]
        self.ordering.admit(SimpleNamespace(batch_to_run=SimpleNamespace(reqs=batch)))

    def serve(self, *requests: Request) -> None:
        self.queue.extend(requests)
        self.order()
        self.admit(len(self.queue))


def test_cached_trajectories_go_first_and_each_request_is_matched_once() -> None:
    scheduler = Scheduler(hits={"a2": 100, "b2": 300})
    scheduler.serve(Request("a1", "a"), Request("b1", "b"))
    scheduler.queue = [Request("c1", "c"), Request("a2", "a"), Request("b2", "b"), Request("d1")]
    assert scheduler.order() == ["b2", "a2", "c1", "d1"]
    scheduler.admit(0)
    scheduler.queue.append(Request("a3", "a"))
    assert scheduler.order() == ["b2", "a2", "a3", "c1", "d1"]
    assert scheduler.matched == ["a2", "b2", "a3"]


def test_a_label_is_touched_when_its_request_is_admitted_and_not_before() -> None:
    scheduler = Scheduler(label_capacity=1)
    scheduler.queue = [Request("a1", "a"), Request("b1", "b")]
    scheduler.order()
    scheduler.admit(1)
    scheduler.queue += [Request("b2", "b"), Request("a2", "a")]
    assert scheduler.order() == ["a2", "b1", "b2"]


def test_a_request_in_chunks_and_running_requests_of_the_batch_are_admitted_once() -> None:
    scheduler = Scheduler(label_capacity=2)
    chunked, running = Request("long", "a"), Request("running", "b")
    scheduler.serve(running)
    scheduler.serve(chunked)
    scheduler.queue = [Request("c1", "c")]
    scheduler.order()
    scheduler.admit(1, before=[chunked], after=[running])  # else a and b would be touched, and c pushed out
    assert scheduler.ordering.counts().misses == 3
    scheduler.queue = [Request("b2", "b"), Request("c2", "c")]
    assert scheduler.order() == ["c2", "b2"]


def test_requests_that_are_passed_over_are_not_admitted() -> None:
    """As where an adapter of LoRA has no place for the first in the queue."""
    scheduler = Scheduler()
    first, second = Request("a1", "a"), Request("b1", "b")
    scheduler.queue = [first, second]
    scheduler.order()
    scheduler.ordering.admit(SimpleNamespace(batch_to_run=SimpleNamespace(reqs=[second])))
    scheduler.queue = [first, Request("b2", "b")]
    assert scheduler.order() == ["b2", "a1"]


def test_a_pass_that_runs_nothing_and_an_empty_queue_admit_nothing() -> None:
    scheduler = Scheduler()
    assert scheduler.ordering.admit(SimpleNamespace(batch_to_run=None)) is False
    scheduler.queue = [Request("a1", "a")]
    scheduler.order()
    assert scheduler.ordering.admit(None) is True
    assert (
        scheduler.ordering.admit(SimpleNamespace(batch_to_run=SimpleNamespace(reqs=scheduler.queue))) is False
    )
    scheduler.queue = []
    scheduler.order()
    assert scheduler.ordering.admit(SimpleNamespace(reqs=[Request("chunk", "x")])) is True
    assert scheduler.ordering.counts().misses == 0


def test_a_retracted_request_keeps_its_place_and_its_hit_and_is_admitted_again() -> None:
    scheduler = Scheduler(hits={"a2": 100})
    first = Request("first")
    scheduler.serve(Request("a1", "a"), first)
    retracted = Request("a2", "a")
    scheduler.serve(retracted)
    scheduler.queue = [Request("later"), retracted, first]
    assert scheduler.order() == ["a2", "first", "later"]
    assert scheduler.matched == ["a2"]
    scheduler.admit(1)
    assert scheduler.ordering.counts().hits == 2


def test_nothing_is_kept_of_a_request_that_leaves_the_queue_unserved() -> None:
    scheduler = Scheduler()
    scheduler.queue = [Request("a1", "a")]
    scheduler.order()
    scheduler.queue = []
    scheduler.admit(0)
    assert scheduler.order() == []
    scheduler.queue = [Request("a2", "a")]
    scheduler.order()
    assert scheduler.matched == []


def test_a_queue_that_is_changed_in_place_is_refused_not_taken_for_no_admission() -> None:
    scheduler = Scheduler()
    scheduler.queue = [Request("a1", "a"), Request("b1", "b")]
    scheduler.order()
    admitted = scheduler.queue.pop(0)
    with pytest.raises(RuntimeError, match="cannot tell which requests this SGLang admits"):
        scheduler.ordering.admit(SimpleNamespace(batch_to_run=SimpleNamespace(reqs=[admitted])))


@pytest.mark.parametrize(("lowest_first", "expected"), [(False, "b2 c1 a2 d1"), (True, "a2 d1 b2 c1")])
def test_priorities_come_before_the_prefix(lowest_first: bool, expected: str) -> None:
    scheduler = Scheduler(
        hits={"a2": 10, "b2": 10}, options={"by_priority": True, "lowest_first": lowest_first}
    )
    scheduler.serve(Request("a1", "a", 0), Request("b1", "b", 0))
    scheduler.queue = [
        Request("c1", "c", 5),
        Request("d1", "d", -5),
        Request("b2", "b", 5),
        Request("a2", "a", -5),
    ]
    assert " ".join(scheduler.order()) == expected


def test_priorities_of_any_size_are_in_order() -> None:
    scheduler = Scheduler(options={"by_priority": True})
    scheduler.queue = [
        Request("least", None, -(10**30)),
        Request("most", None, 10**30),
        Request("one", None, True),
    ]
    assert scheduler.order() == ["most", "one", "least"]


@pytest.mark.parametrize("label", [b"bytes", 7, ["a"], "x" * 1_000_000, "\ud800"])
def test_what_cannot_be_a_label_is_served_unlabelled_and_told_once(
    label: Any, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = Scheduler()
    scheduler.serve(Request("r1", label))
    scheduler.serve(Request("r2", label))
    counts = scheduler.ordering.counts()
    assert (counts.refused_labels, counts.unlabelled, counts.hits, counts.misses) == (2, 2, 0, 0)
    assert len(caplog.records) == 1
    assert "a request is scheduled as unlabelled: routing_key must be" in caplog.text
    assert len(caplog.text) < 500


@pytest.mark.parametrize("missing", [None, ""])
def test_missing_labels_are_told_once_and_how_to_send_them(
    missing: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = Scheduler()
    scheduler.serve(*(Request(f"HEALTH_CHECK_{n}", missing) for n in range(1000)))
    scheduler.serve(*(Request(f"r{n}", missing) for n in range(UNLABELLED_BEFORE_WARNING - 1)))
    assert caplog.records == []
    scheduler.serve(Request("labelled", "a"), *(Request(f"s{n}", missing) for n in range(1000)))
    assert len(caplog.records) == 1
    assert caplog.records[0].levelno == logging.WARNING
    assert "16 of the first 17 requests have no trajectory label" in caplog.text
    assert "x-smg-routing-key" in caplog.text
    assert scheduler.ordering.counts().unlabelled == 2015


def test_every_rank_finds_the_same_order() -> None:
    ranks = [Scheduler(hits={f"r{n}": n % 3 for n in range(40)}) for _ in range(2)]
    for number in range(40):
        for rank in ranks:
            rank.queue.append(Request(f"r{number}", f"t{number % 5}"))
        if number % 4 == 3:
            orders = [rank.order() for rank in ranks]
            assert orders[0] == orders[1]
            for rank in ranks:
                rank.admit(1)


def test_counts() -> None:
    scheduler = Scheduler(hits={"a2": 5})
    scheduler.serve(Request("a1", "a"), Request("u1"))
    scheduler.serve(Request("b1", "b"), Request("a2", "a"))
    counts = scheduler.ordering.counts()
    assert (counts.passes, counts.queries, counts.changes) == (2, 1, 1)
    assert (counts.hits, counts.misses, counts.unlabelled) == (1, 2, 1)
    assert counts.seconds > 0
