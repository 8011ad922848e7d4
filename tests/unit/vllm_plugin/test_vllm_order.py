"""RP on vLLM's requests: what a request keeps, what touches a label, and where labels are read from."""

import logging
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from coresched_engine.labels import UNLABELLED_BEFORE_WARNING
from coresched_vllm.labels import Labels
from coresched_vllm.routing_prefix import RoutingPrefixOrder


@dataclass(eq=False)
class Request:
    request_id: str
    session_id: Any = None
    sampling_params: Any = None
    num_preemptions: int = 0


@dataclass
class Scheduler:
    hits: dict[str, int] = field(default_factory=dict)
    label_capacity: int = 8

    def __post_init__(self) -> None:
        self.asked: list[str] = []
        self.waiting: list[Request] = []
        self.ordering = RoutingPrefixOrder(self.label_capacity, self.hit)

    def hit(self, request: Request) -> int:
        self.asked.append(request.request_id)
        return self.hits.get(request.request_id, 0)

    def order(self) -> list[str]:
        self.ordering.order(self.waiting)
        return [request.request_id for request in self.waiting]

    def admit(self, count: int) -> None:
        admitted, self.waiting = self.waiting[:count], self.waiting[count:]
        self.ordering.admitted(admitted)


def test_cached_trajectories_go_first_and_each_request_is_asked_once() -> None:
    scheduler = Scheduler(hits={"a2": 100, "b2": 300})
    scheduler.waiting = [Request("a1", "a"), Request("b1", "b")]
    assert scheduler.order() == ["a1", "b1"]
    scheduler.admit(2)
    scheduler.waiting = [Request("c1", "c"), Request("a2", "a"), Request("b2", "b"), Request("d1")]
    assert scheduler.order() == ["b2", "a2", "c1", "d1"]
    scheduler.waiting.append(Request("a3", "a"))
    assert scheduler.order() == ["b2", "a2", "a3", "c1", "d1"]
    assert scheduler.asked == ["a2", "b2", "a3"]


def test_a_label_is_touched_by_the_admission_of_its_request() -> None:
    scheduler = Scheduler(label_capacity=1)
    scheduler.waiting = [Request("a1", "a"), Request("b1", "b")]
    scheduler.order()
    scheduler.admit(1)
    scheduler.waiting += [Request("b2", "b"), Request("a2", "a")]
    assert scheduler.order() == ["a2", "b1", "b2"]


def test_a_request_that_returns_keeps_its_place_and_its_hit() -> None:
    scheduler = Scheduler(hits={"a2": 100, "a3": 50})
    scheduler.ordering.policy.admitted("a")
    scheduler.waiting = [Request("a2", "a"), Request("a3", "a")]
    scheduler.order()
    returned = scheduler.waiting[1]
    scheduler.waiting = [returned, Request("x", "x")]
    scheduler.hits["a3"] = 1_000
    scheduler.waiting.append(Request("a4", "a"))
    assert scheduler.order() == ["a3", "a4", "x"]
    assert scheduler.asked == ["a2", "a3", "a4"]


def test_a_request_that_runs_without_a_pass_touches_its_label() -> None:
    scheduler = Scheduler()
    scheduler.ordering.admitted([Request("loaded", "a")])
    assert scheduler.ordering.policy.labels() == ["a"]


def test_who_was_pushed_out_is_counted_apart_where_it_is_admitted_again() -> None:
    scheduler = Scheduler()
    first, other = Request("a1", "a"), Request("n")
    scheduler.ordering.admitted([first, other])
    first.num_preemptions = 1
    scheduler.ordering.admitted([first])
    first.num_preemptions = 2
    scheduler.ordering.admitted([first, Request("a2", "a")])
    counts = scheduler.ordering.counts()
    assert (counts.misses, counts.hits, counts.unlabelled, counts.resumed) == (1, 3, 1, 2)


def test_counts() -> None:
    scheduler = Scheduler()
    scheduler.waiting = [Request("a1", "a"), Request("n")]
    scheduler.order()
    scheduler.admit(2)
    scheduler.waiting = [Request("b1", "b"), Request("a2", "a"), Request("bad", "k" * 600)]
    scheduler.order()
    scheduler.admit(3)
    scheduler.order()
    counts = scheduler.ordering.counts()
    assert (counts.passes, counts.changes, counts.queries) == (2, 1, 1)
    assert (counts.hits, counts.misses, counts.unlabelled, counts.refused_labels) == (1, 2, 2, 1)
    assert counts.seconds > 0


def arguments(**values: Any) -> Any:
    return SimpleNamespace(extra_args=values)


@pytest.mark.parametrize(
    ("request_", "label"),
    [
        (Request("r", "s"), "s"),
        (Request("r", "s", arguments(trajectory="t")), "s"),
        (Request("r", None, arguments(trajectory="t", session_id="x")), "t"),
        (Request("r", "", arguments(session_id="x")), "x"),
        (Request("r", None, arguments(other="x")), None),
        (Request("r", None, SimpleNamespace(extra_args=None)), None),
        (Request("r", None, None), None),  # pooling
        (Request("r", 7), None),
        (Request("r", None, arguments(trajectory=["t"])), None),
        (Request("r", None, arguments(trajectory="a\ud800")), None),
        (Request("r", None, SimpleNamespace(extra_args="trajectory")), None),
    ],
)
def test_where_a_label_is_read(request_: Request, label: str | None) -> None:
    assert Labels("p").of(request_) == label


def test_what_cannot_be_a_label_is_told_once_by_its_field(caplog: pytest.LogCaptureFixture) -> None:
    labels = Labels("p")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            labels.of(Request("r", None, arguments(trajectory=7)))
    assert labels.refused == 3
    (line,) = [record.getMessage() for record in caplog.records]
    assert "trajectory must be a str, got 7" in line


def test_missing_labels_are_told_once_and_how_to_send_them(caplog: pytest.LogCaptureFixture) -> None:
    labels = Labels("coresched_vllm.RoutingPrefix")
    with caplog.at_level(logging.WARNING):
        for number in range(2 * UNLABELLED_BEFORE_WARNING):
            labels.of(Request(str(number)))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"{UNLABELLED_BEFORE_WARNING} of the first {UNLABELLED_BEFORE_WARNING} requests")
    assert "X-Session-ID" in line
