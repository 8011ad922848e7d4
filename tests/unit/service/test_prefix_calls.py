"""Calls of the Prefix service: each once however often it is sent, tenants apart, orders with their hits."""

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message
from grpc import StatusCode
from prefix_queues import new_id, snapshot

from coresched.service.prefix.calls import PrefixCalls
from coresched.service.prefix.queues import WaitingQueues
from coresched.service.refusal import RefusedError
from coresched.v1 import prefix_pb2 as pb

Q = "w0"


class Served:
    """The calls, the queues behind them, and short forms of the messages."""

    def __init__(self) -> None:
        self.queues = WaitingQueues()
        self.calls = PrefixCalls(self.queues)
        self.calls.open_queue(pb.OpenQueueRequest(request_id=new_id(), queue=Q, label_capacity=4))

    def push(self, *requests: pb.QueuedRequest, tenant: str = "") -> None:
        self.calls.push(pb.PushRequest(request_id=new_id(), queue=Q, requests=requests), tenant)

    def admit(self, *names: str) -> None:
        self.calls.admitted(pb.AdmittedRequest(request_id=new_id(), queue=Q, names=names))

    def order(self, **fields: Any) -> pb.OrderResponse:
        return self.calls.order(pb.OrderRequest(request_id=new_id(), queue=Q, **fields))


@pytest.fixture
def served() -> Served:
    served = Served()
    served.push(pb.QueuedRequest(name="a", label="k"), pb.QueuedRequest(name="b", label="j"))
    served.push(pb.QueuedRequest(name="c", label="k"), pb.QueuedRequest(name="d"))
    served.admit("a")
    return served


def test_an_order_lists_the_hits_it_misses_and_is_made_once_they_are_told(served: Served) -> None:
    before = snapshot(served.queues)
    assert served.order(limit=1) == pb.OrderResponse(unasked=["c"], waiting=3)
    assert snapshot(served.queues) == before
    hits = [pb.Hit(name="c", tokens=64)]
    served.calls.set_hits(pb.SetHitsRequest(request_id=new_id(), queue=Q, hits=hits))
    assert served.order() == pb.OrderResponse(names=["c", "b", "d"], waiting=3)
    assert served.order(limit=1) == pb.OrderResponse(names=["c"], waiting=3)
    assert served.order(limit=1, after="c") == pb.OrderResponse(names=["b"], waiting=3)


def test_reading_on_misses_no_hit(served: Served) -> None:
    assert served.order(after="b") == pb.OrderResponse(names=["c", "d"], waiting=3)


def test_a_label_and_a_hit_of_zero_are_told_from_none(served: Served) -> None:
    served.push(pb.QueuedRequest(name="e", label="k", hit_tokens=0))
    assert list(served.order().unasked) == ["c"]
    with pytest.raises(RefusedError, match="label must not be empty"):
        served.push(pb.QueuedRequest(name="f", label=""))
    with pytest.raises(RefusedError, match="queued_at must be on every request"):
        served.push(pb.QueuedRequest(name="f", queued_at=0))


def test_every_mutating_call_sent_again_changes_nothing(served: Served) -> None:
    calls = served.calls
    requests = [pb.QueuedRequest(name="e", label="j")]
    hits = [pb.Hit(name="c", tokens=1)]
    steps: list[tuple[Callable[[Any], Message], Any, Message]] = [
        (calls.open_queue, pb.OpenQueueRequest(queue=Q, label_capacity=4), pb.OpenQueueResponse(waiting=3)),
        (calls.push, pb.PushRequest(queue=Q, requests=requests), pb.PushResponse()),
        (calls.set_hits, pb.SetHitsRequest(queue=Q, hits=hits), pb.SetHitsResponse()),
        (calls.admitted, pb.AdmittedRequest(queue=Q, names=["b", "d"]), pb.AdmittedResponse()),
        (calls.requeue, pb.RequeueRequest(queue=Q, names=["d"]), pb.RequeueResponse()),
        (calls.forget, pb.ForgetRequest(queue=Q, names="bd"), pb.ForgetResponse(waiting=1, admitted=1)),
        (calls.close_queue, pb.CloseQueueRequest(queue=Q), pb.CloseQueueResponse(dropped=2)),
    ]
    earlier: list[tuple[Callable[[Any], Message], Any, Message]] = []
    for call, request, answer in steps:
        request.request_id = new_id()
        assert call(request) == answer
        earlier.append((call, request, answer))
        after = snapshot(served.queues)
        for again, sent, given in earlier:
            assert again(sent) == given
        assert snapshot(served.queues) == after
    assert snapshot(served.queues) == {}


def test_an_id_is_of_one_call_also_beside_an_order(served: Served) -> None:
    served.calls.forget(pb.ForgetRequest(request_id="used", queue=Q, names=["d"]))
    before = snapshot(served.queues)
    for call, request in (
        (served.calls.forget, pb.ForgetRequest(request_id="used", queue=Q, names=["b"])),
        (served.calls.admitted, pb.AdmittedRequest(request_id="used", queue=Q, names=["d"])),
        (served.calls.order, pb.OrderRequest(request_id="used", queue=Q)),
    ):
        with pytest.raises(RefusedError, match="request_id must be new for each call, got 'used'"):
            call(request)  # type: ignore[arg-type]
    for request_id in ("", "x" * 129):
        with pytest.raises(RefusedError, match=r"^request_id must"):
            served.calls.order(pb.OrderRequest(request_id=request_id, queue=Q))
    assert snapshot(served.queues) == before


def test_a_refused_call_is_not_remembered(served: Served) -> None:
    retried = pb.AdmittedRequest(request_id="retried", queue=Q, names=["e"])
    with pytest.raises(RefusedError, match="names must be of a request that waits"):
        served.calls.admitted(retried)
    served.push(pb.QueuedRequest(name="e"))
    assert served.calls.admitted(retried) == pb.AdmittedResponse()


def test_an_order_sent_again_is_a_new_pass(served: Served) -> None:
    order = pb.OrderRequest(request_id="pass", queue=Q, after="c")
    assert list(served.calls.order(order).names) == ["d"]
    served.push(pb.QueuedRequest(name="e"))
    assert list(served.calls.order(order).names) == ["d", "e"]


def test_a_queue_is_joined_with_the_same_capacity_only(served: Served) -> None:
    joined = pb.OpenQueueRequest(request_id=new_id(), queue=Q, label_capacity=4)
    assert served.calls.open_queue(joined).waiting == 3
    with pytest.raises(RefusedError) as refused:
        served.calls.open_queue(pb.OpenQueueRequest(request_id=new_id(), queue=Q, label_capacity=5))
    assert (refused.value.code, refused.value.field) == (StatusCode.ALREADY_EXISTS, "label_capacity")
    assert refused.value.message == (
        "label_capacity must be 4, with which queue 'w0' was opened, got 5; "
        "close the queue first to change it"
    )


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_is_at_least_one_name(served: Served, limit: int) -> None:
    with pytest.raises(RefusedError) as refused:
        served.order(limit=limit)
    assert (refused.value.code, refused.value.field) == (StatusCode.INVALID_ARGUMENT, "limit")
    assert refused.value.message.startswith(f"limit must be at least 1 name, got {limit};")


def test_every_call_but_opening_needs_an_open_queue(served: Served) -> None:
    calls = served.calls
    for call, kind in (
        (calls.close_queue, pb.CloseQueueRequest),
        (calls.push, pb.PushRequest),
        (calls.requeue, pb.RequeueRequest),
        (calls.order, pb.OrderRequest),
        (calls.set_hits, pb.SetHitsRequest),
        (calls.admitted, pb.AdmittedRequest),
        (calls.forget, pb.ForgetRequest),
        (calls.question, pb.OrderRequest),
    ):
        for name, code in (("w1", StatusCode.NOT_FOUND), ("", StatusCode.INVALID_ARGUMENT)):
            with pytest.raises(RefusedError) as refused:
                call(kind(request_id=new_id(), queue=name))  # type: ignore[operator]
            assert (refused.value.code, refused.value.field) == (code, "queue")


def test_tenants_share_neither_queues_nor_request_ids(served: Served) -> None:
    opened = pb.OpenQueueRequest(request_id="same", queue=Q, label_capacity=4)
    assert served.calls.open_queue(opened).waiting == 3
    other = pb.OpenQueueRequest(request_id="same", queue=Q, label_capacity=9)
    assert served.calls.open_queue(other, "t").waiting == 0
    served.push(pb.QueuedRequest(name="c"), tenant="t")
    pass_of_t = pb.OrderRequest(request_id=new_id(), queue=Q)
    assert served.calls.order(pass_of_t, "t") == pb.OrderResponse(names=["c"], waiting=1)
    served.calls.close_queue(pb.CloseQueueRequest(request_id=new_id(), queue=Q), "t")
    assert served.order().waiting == 3
