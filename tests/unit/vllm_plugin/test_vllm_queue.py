"""vLLM's waiting queue as a list: against vLLM's own, a deque, and what becomes of preempted requests."""

from collections import deque
from dataclasses import dataclass

import pytest
from coresched_vllm.queue import WaitingQueue
from hypothesis import given
from hypothesis import strategies as st


@dataclass(eq=False)
class Request:
    name: str
    preempted: bool = False


def queue_of(*requests: Request) -> WaitingQueue:
    queue = WaitingQueue(lambda request: request.preempted)
    for request in requests:
        queue.add_request(request)
    return queue


def names(queue: WaitingQueue) -> str:
    return "".join(request.name for request in queue)


STEPS = st.lists(st.tuples(st.sampled_from(["add", "pop", "prepend", "skip", "remove"]), st.integers(0, 5)))


@given(STEPS)
def test_unordered_it_is_vllms_first_come_first_served_queue(steps: list[tuple[str, int]]) -> None:
    queue, twin = queue_of(), deque[Request]()
    for number, (step, count) in enumerate(steps):
        if step == "add":
            request = Request(chr(97 + number % 26))
            queue.add_request(request)
            twin.append(request)
        elif step == "pop" and twin:
            assert queue.peek_request() is twin[0]
            assert queue.pop_request() is twin.popleft()
        elif step == "prepend":
            request = Request(chr(65 + number % 26))
            queue.prepend_request(request)
            twin.appendleft(request)
        elif step == "skip":  # as a pass of vLLM does with the requests that it passes over
            skipped: deque[Request] = deque()
            for _ in range(min(count, len(twin))):
                twin.popleft()
                skipped.appendleft(queue.pop_request())
            queue.prepend_requests(skipped)
            twin.extendleft(skipped)
        elif step == "remove" and len(twin) > count:
            removed = {twin[count], Request("elsewhere")}
            queue.remove_requests(removed)
            twin = deque(request for request in twin if request not in removed)
        assert list(queue) == list(twin)
        assert (len(queue), bool(queue)) == (len(twin), bool(twin))


def test_preempted_requests_come_first_and_are_not_ordered() -> None:
    queue = queue_of(Request("a"), Request("b"))
    queue.prepend_request(Request("Q", preempted=True))  # the victims of a pass, the latest first
    queue.prepend_request(Request("P", preempted=True))
    queue.ordered.reverse()
    assert names(queue) == "PQba"
    assert [queue.pop_request().name for _ in range(4)] == ["P", "Q", "b", "a"]


def test_requests_that_were_passed_over_go_back_to_where_they_were_from() -> None:
    queue = queue_of(Request("a"), Request("b"), Request("c"))
    queue.prepend_request(Request("P", preempted=True))
    skipped: deque[Request] = deque()
    for _ in range(3):
        skipped.appendleft(queue.pop_request())
    queue.prepend_requests(skipped)
    assert names(queue) == "Pabc"
    assert [request.name for request in queue.ordered] == ["a", "b", "c"]


def test_any_request_can_be_removed() -> None:
    requests = [Request("a"), Request("P", preempted=True), Request("b")]
    queue = queue_of(requests[0], requests[2])
    queue.prepend_request(requests[1])
    queue.remove_request(requests[1])
    queue.remove_request(requests[2])
    assert names(queue) == "a"
    with pytest.raises(ValueError, match="not in list"):
        queue.remove_request(requests[2])


def test_an_empty_queue_has_nothing_to_give() -> None:
    with pytest.raises(IndexError):
        queue_of().peek_request()
    with pytest.raises(IndexError):
        queue_of().pop_request()


def test_requests_that_are_held_back_are_there_but_not_offered() -> None:
    queue = queue_of(*map(Request, "abcd"))
    with queue.holding_back(4):
        assert not queue
        assert (len(queue), names(queue)) == (4, "abcd")
    with queue.holding_back(2):
        assert queue
        assert [queue.pop_request().name for _ in range(2)] == ["a", "b"]
        assert not queue
        queue.prepend_request(Request("e"))  # passed over
        queue.prepend_request(Request("p", preempted=True))
    assert names(queue) == "pecd"
    with queue.holding_back(0):
        assert names(queue) == "pecd"


def test_requests_that_are_held_back_can_be_removed() -> None:
    requests = [Request(name) for name in "abcd"]
    queue = queue_of(*requests)
    with queue.holding_back(3):
        queue.remove_request(requests[2])
        queue.remove_requests([requests[0], requests[3], Request("elsewhere")])
        assert names(queue) == "b"
        with pytest.raises(ValueError, match="not in list"):
            queue.remove_request(requests[2])
    assert names(queue) == "b"


def test_what_is_held_back_returns_if_the_pass_fails() -> None:
    queue = queue_of(*map(Request, "ab"))

    def fail() -> None:
        with queue.holding_back(1):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (names(queue), bool(queue)) == ("ab", True)
