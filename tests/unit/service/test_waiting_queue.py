"""A waiting queue: whom a pass needs to know more of, who leaves and returns, and what is refused."""

from collections.abc import Callable

import pytest
from grpc import StatusCode

from coresched.service.prefix.queue import WaitingQueue, page
from coresched.service.prefix.queues import WaitingQueues
from coresched.service.prefix.request import Pushed, record
from coresched.service.refusal import RefusedError


def queue_of(*pushed: Pushed, capacity: int = 4) -> WaitingQueue:
    queue = WaitingQueue(capacity, largest=6, remembered=3)
    queue.push(pushed)
    return queue


def passed(queue: WaitingQueue) -> list[str]:
    queue.make_pass()
    return queue.names(None)


def unasked(queue: WaitingQueue) -> list[str]:
    return [request.id for request in queue.unasked()]


def refusal(step: Callable[[], object]) -> tuple[StatusCode, str, str]:
    with pytest.raises(RefusedError) as refused:
        step()
    return refused.value.code, refused.value.field, refused.value.message


def test_a_hit_is_needed_once_the_label_is_in_the_set_and_never_again() -> None:
    queue = queue_of(Pushed("a", "k"), Pushed("b", "j"), Pushed("c"), capacity=1)
    assert unasked(queue) == []
    assert passed(queue) == ["a", "b", "c"]
    queue.push([Pushed("d", "k")])
    queue.admitted(["a"])
    assert unasked(queue) == ["d"]
    queue.set_hits([("d", 7)])
    assert unasked(queue) == []
    assert passed(queue) == ["d", "b", "c"]
    queue.admitted(["b"])  # j evicts k
    assert passed(queue) == ["c", "d"]
    queue.push([Pushed("e", "k")])
    queue.admitted(["e"])  # and k returns
    assert unasked(queue) == []
    assert passed(queue) == ["d", "c"]


def test_a_pass_without_a_hit_it_needs_is_never_made() -> None:
    queue = queue_of(Pushed("a", "k"), Pushed("b", "k"))
    queue.admitted(["a"])
    with pytest.raises(AssertionError, match="unasked"):
        queue.make_pass()


def test_a_hit_pushed_with_the_request_or_told_early_counts_as_asked() -> None:
    queue = queue_of(Pushed("a", "k"), Pushed("b", "k", hit_tokens=0), Pushed("c", "k"), Pushed("d", "j"))
    queue.set_hits([("c", 5), ("d", 9)])
    queue.admitted(["a"])
    assert unasked(queue) == []
    assert passed(queue) == ["c", "b", "d"]


def test_requests_without_queued_at_are_ordered_by_arrival_also_after_other_passes() -> None:
    queue = queue_of(Pushed("a", "k"), Pushed("b", "j"), Pushed("c", "k", hit_tokens=1), capacity=1)
    queue.admitted(["a"])
    assert passed(queue) == ["c", "b"]
    queue.push([Pushed("d", "i")])
    queue.admitted(["d"])  # k has left the set
    assert passed(queue) == ["b", "c"]


def test_a_retracted_request_comes_back_with_its_time_and_its_hit() -> None:
    queue = queue_of(Pushed("a", "k", 1.0), Pushed("b", "k", 2.0), Pushed("c", "k", 3.0))
    queue.set_hits([("b", 64)])
    queue.admitted(["a", "b"])
    queue.set_hits([("c", 64)])
    assert passed(queue) == ["c"]
    queue.requeue(["b"])
    assert queue.names(None) == ["c", "b"]
    assert unasked(queue) == []
    assert passed(queue) == ["b", "c"]
    assert refusal(lambda: queue.requeue(["b"]))[:2] == (StatusCode.NOT_FOUND, "names")
    queue.requeue(["a"])  # was admitted before anyone needed its hit
    assert unasked(queue) == ["a"]


def test_only_the_last_admissions_are_remembered_and_only_forgotten_names_are_free() -> None:
    queue = queue_of(*(Pushed(name) for name in "abcd"))
    queue.admitted(list("abcd"))
    assert refusal(lambda: queue.requeue(["a"])) == (
        StatusCode.NOT_FOUND,
        "names",
        "names must be of the last 3 requests admitted from the queue, got 'a'",
    )
    queue.push([Pushed("a")])
    code, field, message = refusal(lambda: queue.push([Pushed("b")]))
    assert (code, field) == (StatusCode.ALREADY_EXISTS, "name")
    assert message.startswith("name must be new in the queue, got 'b', which was admitted; requeue it")
    assert queue.forget(["b", "a", "b", "z"]) == (1, 1)
    queue.push([Pushed("b")])
    assert queue.names(None) == ["b"]


def test_forgetting_touches_no_label_and_admitting_does_in_order() -> None:
    queue = queue_of(Pushed("a", "k"), Pushed("b", "j"), Pushed("c", "i"), capacity=2)
    queue.forget(["a"])
    queue.admitted(["c", "b"])
    queue.push([Pushed(name, label) for name, label in zip("xyz", "kji", strict=True)])
    assert unasked(queue) == ["y", "z"]
    queue.push([Pushed("w", "h")])
    queue.admitted(["w"])  # i, touched first, leaves
    assert unasked(queue) == ["y"]


def test_names_are_read_on_behind_another_without_a_pass() -> None:
    queue = queue_of(*(Pushed(name, queued_at=-ord(name)) for name in "abcd"))
    assert passed(queue) == list("dcba")
    queue.push([Pushed("z", queued_at=-1000.0)])
    assert queue.names(2) == ["d", "c"]
    assert queue.names(2, after="c") == ["b", "a"]
    assert queue.names(2, after="a") == ["z"]
    assert queue.names(None, after="z") == []
    assert refusal(lambda: queue.names(2, after="q"))[:2] == (StatusCode.NOT_FOUND, "after")


def test_a_page_has_as_many_names_as_fit_and_never_none() -> None:
    names = [f"{n:0512d}" for n in range(200)]
    first = page(names)
    assert first == names[: len(first)]
    assert 100 < len(first) < 128
    assert page(names[len(first) :]) == names[len(first) :]
    assert page(["é" * 256] * 130) == ["é" * 256] * len(first)


def test_a_question_is_answered_in_full_and_a_hit_told_meanwhile_stands() -> None:
    queue = queue_of(Pushed("a", "k"), Pushed("b", "k"), Pushed("c", "k"))
    queue.admitted(["a"])
    asked = queue.unasked()
    assert refusal(lambda: record(asked, [1]))[:2] == (StatusCode.INVALID_ARGUMENT, "tokens")
    assert refusal(lambda: record(asked, [1, -1])) == (
        StatusCode.INVALID_ARGUMENT,
        "tokens",
        "tokens must be at least 0, got -1, for request 'c'",
    )
    assert unasked(queue) == ["b", "c"]
    queue.set_hits([("c", 9)])
    record(asked, [5, 1])
    assert passed(queue) == ["c", "b"]


@pytest.mark.parametrize(
    ("step", "code", "field", "message"),
    [
        (lambda q: q.push([Pushed("")]), "INVALID_ARGUMENT", "name", "name must not be empty"),
        (lambda q: q.push([Pushed("é" * 257)]), "INVALID_ARGUMENT", "name", "name must be at most 512 bytes"),
        (
            lambda q: q.push([Pushed("z"), Pushed("z")]),
            "INVALID_ARGUMENT",
            "name",
            "name must come once in a",
        ),
        (
            lambda q: q.push([Pushed("a")]),
            "ALREADY_EXISTS",
            "name",
            "name must be new in the queue, got 'a', wh",
        ),
        (
            lambda q: q.push([Pushed("z", "")]),
            "INVALID_ARGUMENT",
            "label",
            "label must not be empty, got '', fo",
        ),
        (
            lambda q: q.push([Pushed("z", "k", float("nan"))]),
            "FAILED_PRECONDITION",
            "queued_at",
            "queued_at must be on every request of a queue or on none, and request 'z' is the first with it",
        ),
        (
            lambda q: q.push([Pushed("z", hit_tokens=-1)]),
            "INVALID_ARGUMENT",
            "hit_tokens",
            "hit_tokens must be at least 0, got -1, for request 'z'",
        ),
        (
            lambda q: q.push([Pushed(f"z{n}") for n in range(4)]),
            "RESOURCE_EXHAUSTED",
            "requests",
            "requests must leave at most 6 waiting in the queue, got 4 more for 3 that wait",
        ),
        (lambda q: q.requeue(["a"]), "NOT_FOUND", "names", "names must be of the last 3 requests admitted"),
        (
            lambda q: q.requeue(["x", "x"]),
            "INVALID_ARGUMENT",
            "names",
            "names must come once in a call, got 'x'",
        ),
        (
            lambda q: q.requeue(list("xyzx")),
            "RESOURCE_EXHAUSTED",
            "names",
            "names must leave at most 6 waiting",
        ),
        (
            lambda q: q.admitted(["a", "z"]),
            "NOT_FOUND",
            "names",
            "names must be of a request that waits in the",
        ),
        (lambda q: q.admitted(["a", "a"]), "INVALID_ARGUMENT", "names", "names must come once in a call"),
        (
            lambda q: q.set_hits([("b", 1), ("b", 1)]),
            "INVALID_ARGUMENT",
            "name",
            "name must come once in a call",
        ),
        (
            lambda q: q.set_hits([("b", 1), ("z", 1)]),
            "NOT_FOUND",
            "name",
            "name must be of a request that waits",
        ),
        (
            lambda q: q.set_hits([("b", -1)]),
            "INVALID_ARGUMENT",
            "tokens",
            "tokens must be at least 0, got -1",
        ),
        (
            lambda q: q.set_hits([("b", 1), ("a", 1)]),
            "FAILED_PRECONDITION",
            "name",
            "name must be of a request wh",
        ),
    ],
)
def test_a_refused_step_names_the_field_and_changes_nothing(
    step: Callable[[WaitingQueue], None], code: str, field: str, message: str
) -> None:
    queue = queue_of(Pushed("a", "k", hit_tokens=1), Pushed("b", "k"), Pushed("c"), Pushed("x"))
    queue.admitted(["x"])
    got_code, got_field, got_message = refusal(lambda: step(queue))
    assert (got_code.name, got_field) == (code, field)
    assert got_message.startswith(message)
    assert passed(queue) == ["a", "b", "c"]
    queue.push([Pushed("d", "k")])
    queue.admitted(["a"])
    assert unasked(queue) == ["b", "d"]
    queue.requeue(["x"])


def test_a_time_must_be_finite_and_present_where_others_have_one() -> None:
    queue = queue_of(Pushed("a", queued_at=0.0))
    assert refusal(lambda: queue.push([Pushed("z", queued_at=float("nan"))])) == (
        StatusCode.INVALID_ARGUMENT,
        "queued_at",
        "queued_at must be a finite number, got nan, for request 'z'",
    )
    assert refusal(lambda: queue.push([Pushed("z")]))[2].endswith("request 'z' is the first without it")
    untouched = WaitingQueue(1)
    assert refusal(lambda: untouched.push([Pushed("y"), Pushed("z", queued_at=0.0)]))[1] == "queued_at"
    untouched.push([Pushed("z", queued_at=0.0)])  # the refused push decided nothing


@pytest.mark.parametrize("capacity", [0, -1, 1_000_001])
def test_a_label_capacity_is_from_one_to_a_million(capacity: int) -> None:
    queues = WaitingQueues()
    code, field, message = refusal(lambda: queues.open("", "w0", capacity))
    assert (code, field) == (StatusCode.INVALID_ARGUMENT, "label_capacity")
    assert message == f"label_capacity must be from 1 to 1000000 labels, got {capacity}"
    assert queues.open("", "w0", 1_000_000).label_capacity == 1_000_000


def test_each_tenant_has_its_own_queues_and_its_own_limit() -> None:
    queues = WaitingQueues(most=2)
    for tenant in ("", "t"):
        for name in ("w0", "w1"):
            queues.open(tenant, name, 4)
        code, field, message = refusal(lambda tenant=tenant: queues.open(tenant, "w2", 4))
        assert (code, field) == (StatusCode.RESOURCE_EXHAUSTED, "queue")
        assert message == "queue 'w2' would be one more than the 2 that may be open; close one first"
    queues.open("t", "w0", 4).push([Pushed("a")])
    assert len(queues.find("", "w0")) == 0
    assert queues.close("t", "w0") == 1
    assert queues.open("t", "w2", 4) is queues.find("t", "w2")
    assert refusal(lambda: queues.find("t", "w0"))[:2] == (StatusCode.NOT_FOUND, "queue")
    assert refusal(lambda: queues.find("u", "w0"))[:2] == (StatusCode.NOT_FOUND, "queue")
    queues.find("", "w0")
