"""Requests in flight as Serve's router makes, sends, retries and ends attempts to place them."""

from dataclasses import dataclass, field
from types import SimpleNamespace

from coresched_ray.attempts import Attempts
from coresched_ray.replica_ring import ReplicaRing


@dataclass(eq=False)
class Request:
    metadata: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(internal_request_id="id"))
    future: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(done=lambda: False))


def counting() -> tuple[ReplicaRing[str], Attempts]:
    ring: ReplicaRing[str] = ReplicaRing()
    ring.place({"a": 0, "b": 1, "c": 2})
    return ring, Attempts(ring)


def test_a_request_is_counted_from_the_choice_to_its_completion() -> None:
    ring, attempts = counting()
    request = Request()
    attempt = attempts.begin(request, "label")
    assert attempts.charge(attempt)
    chosen = attempt.replica
    assert ring.in_flight() == {chosen: 1}
    attempts.assign(attempt, request, chosen, "task")
    attempts.sent(chosen, "task")
    attempts.end_unsent(attempt)
    assert ring.in_flight() == {chosen: 1}
    attempts.completed(chosen, "id")
    attempts.completed(chosen, "id")
    assert ring.in_flight() == {}


def test_the_charge_moves_to_the_replica_that_serve_took() -> None:
    ring, attempts = counting()
    request = Request()
    attempt = attempts.begin(request, "label")
    attempts.charge(attempt)
    other = next(each for each in "abc" if each != attempt.replica)
    attempts.assign(attempt, request, other, "task")
    assert ring.in_flight() == {other: 1}


def test_a_cancelled_choice_counts_no_more() -> None:
    ring, attempts = counting()
    request = Request()
    attempt = attempts.begin(request, None)
    attempts.charge(attempt)
    attempts.drop(attempt, request)
    assert ring.in_flight() == {}
    assert attempts.waiting(request) is None


def test_a_refused_request_that_is_tried_again_is_counted_once() -> None:
    ring, attempts = counting()
    request = Request()
    first = attempts.begin(request, "label")
    attempts.charge(first)
    refusing = first.replica
    attempts.assign(first, request, refusing, "task")
    attempts.sent(refusing, "task")
    second = attempts.begin(request, "label")
    attempts.charge(second, [refusing])
    taking = second.replica
    attempts.assign(second, request, taking, "task")
    attempts.sent(taking, "task")
    attempts.completed(refusing, "id")  # Serve tells of the refused one late
    assert ring.in_flight() == {taking: 1}
    attempts.completed(taking, "id")
    assert ring.in_flight() == {}


def test_a_reservation_that_is_given_up_is_not_counted() -> None:
    ring, attempts = counting()
    request = Request()
    for _ in range(2):  # the first replica refuses, of which nothing is told
        attempt = attempts.begin(request, "label")
        attempts.charge(attempt)
        attempts.assign(attempt, request, attempt.replica, "task")
    assert sum(ring.in_flight().values()) == 1
    attempts.end_unsent(attempt)
    assert ring.in_flight() == {}


def test_what_another_task_sends_does_not_make_a_reservation_sent() -> None:
    ring, attempts = counting()
    request = Request()
    attempt = attempts.begin(request, "label")
    attempts.charge(attempt)
    attempts.assign(attempt, request, attempt.replica, "task")

    attempts.sent(attempt.replica, "another")
    attempts.end_unsent(attempt)
    assert ring.in_flight() == {}


def test_calls_with_one_internal_id_are_told_apart() -> None:
    _, attempts = counting()
    one, other = Request(), Request()
    attempts.begin(one, None)
    attempts.begin(other, None)
    assert attempts.request_of(one.metadata) is one
    assert attempts.request_of(other.metadata) is other
    assert attempts.request_of(SimpleNamespace(internal_request_id="id")) is None
