"""A Schedule stream without a network: questions before orders, refusals that end nothing."""

from collections.abc import Iterator

import pytest
from prefix_queues import StreamEnd, new_id, snapshot

from coresched.service.prefix.calls import PrefixCalls
from coresched.service.prefix.queues import WaitingQueues
from coresched.service.rpc import UNDECODABLE
from coresched.v1 import prefix_pb2 as pb
from coresched.v1 import router_pb2

Q = "w0"
ORDER = pb.ScheduleRequest(order=pb.OrderRequest(request_id="pass", queue=Q))


def hits(*tokens: int, request_id: str = "pass") -> pb.ScheduleRequest:
    return pb.ScheduleRequest(hit_answer=pb.HitAnswer(request_id=request_id, tokens=tokens))


def pushed(*names: str, label: str = "k") -> pb.ScheduleRequest:
    requests = [pb.QueuedRequest(name=name, label=label) for name in names]
    return pb.ScheduleRequest(push=pb.PushRequest(request_id=new_id(), queue=Q, requests=requests))


@pytest.fixture
def queues() -> WaitingQueues:
    return WaitingQueues()


@pytest.fixture
def calls(queues: WaitingQueues) -> PrefixCalls:
    return PrefixCalls(queues)


@pytest.fixture
def stream(calls: PrefixCalls) -> Iterator[StreamEnd]:
    """A stream whose queue has a and b waiting, both with a label in the set and no hit."""
    stream = StreamEnd(calls)
    opened = pb.OpenQueueRequest(request_id="open", queue=Q, label_capacity=4)
    answer = stream.send(pb.ScheduleRequest(open_queue=opened))
    assert answer == pb.ScheduleResponse(request_id="open", open_queue=pb.OpenQueueResponse())
    stream.send(pushed("warm"))
    admitted = pb.AdmittedRequest(request_id="admit", queue=Q, names=["warm"])
    answer = stream.send(pb.ScheduleRequest(admitted=admitted))
    assert answer == pb.ScheduleResponse(request_id="admit", admitted=pb.AdmittedResponse())
    assert stream.send(pushed("a", "b")).HasField("push")
    yield stream
    stream.end()


def test_an_order_asks_first_once_for_each_request(stream: StreamEnd) -> None:
    answer = stream.send(ORDER)
    assert answer == pb.ScheduleResponse(request_id="pass", question=pb.HitQuestion(names=["a", "b"]))
    answer = stream.send(hits(1, 2))
    assert answer == pb.ScheduleResponse(request_id="pass", order=pb.OrderResponse(names="ba", waiting=2))
    stream.send(pushed("c"))
    assert stream.send(ORDER).question.names == ["c"]
    assert stream.send(hits(3)).order.names == ["c", "b", "a"]
    assert stream.send(ORDER).order.names == ["c", "b", "a"]


def test_reading_on_in_the_last_pass_asks_nothing(stream: StreamEnd) -> None:
    rest = pb.OrderRequest(request_id="rest", queue=Q, after="a")
    assert stream.send(pb.ScheduleRequest(order=rest)).order == pb.OrderResponse(names=["b"], waiting=2)
    assert stream.send(ORDER).question.names == ["a", "b"]
    assert stream.send(hits(0, 0)).order.names == ["a", "b"]


def test_more_than_fits_a_message_is_asked_in_several(stream: StreamEnd) -> None:
    names = [f"{n:0512d}" for n in range(200)]
    stream.send(pushed(*names[:100]))
    stream.send(pushed(*names[100:]))
    told: dict[str, int] = {}
    answer = stream.send(ORDER)
    for tokens in (1, 2):
        assert answer.ByteSize() < 64 * 1024
        told |= dict.fromkeys(answer.question.names, tokens)
        answer = stream.send(hits(*[tokens] * len(answer.question.names)))
    assert list(told) == ["a", "b", *names]
    ordered = list(answer.order.names)
    while more := stream.send(
        pb.ScheduleRequest(order=pb.OrderRequest(request_id="more", queue=Q, after=ordered[-1]))
    ).order.names:
        ordered += more
    assert ordered == sorted(told, key=lambda name: -told[name])


def test_what_others_push_while_the_engine_looks_is_asked_next(stream: StreamEnd, calls: PrefixCalls) -> None:
    assert stream.send(ORDER).question.names == ["a", "b"]
    calls.push(pushed("c").push)
    calls.forget(pb.ForgetRequest(request_id=new_id(), queue=Q, names=["a"]))
    calls.push(pushed("a").push)  # another request of the same name
    assert stream.send(hits(1, 2)).question.names == ["c", "a"]
    assert stream.send(hits(9, 8)).order.names == ["c", "a", "b"]


def test_another_call_in_place_of_the_answer_refuses_the_order_and_is_carried_out(stream: StreamEnd) -> None:
    stream.send(ORDER)
    refused = stream.send(pushed("c"))
    assert (refused.request_id, refused.refusal.field) == ("pass", "hit_answer")
    assert refused.refusal.code == router_pb2.REFUSAL_CODE_FAILED_PRECONDITION
    assert refused.refusal.message.startswith(
        "hit_answer must come next after a question, here for 2 requests"
    )
    assert stream.read().HasField("push")
    assert stream.send(ORDER).question.names == ["a", "b", "c"]
    assert stream.send(None).refusal.field == "hit_answer"
    assert stream.read().refusal.message == UNDECODABLE
    assert stream.send(hits(1, 1)).refusal.message == (
        "hit_answer must come next after a question, there is none open"
    )


@pytest.mark.parametrize(
    ("answer", "field"),
    [(hits(1), "tokens"), (hits(1, -2), "tokens"), (hits(1, 2, request_id="x"), "request_id")],
)
def test_a_bad_answer_refuses_the_order_and_records_nothing(
    stream: StreamEnd, queues: WaitingQueues, answer: pb.ScheduleRequest, field: str
) -> None:
    before = snapshot(queues)
    stream.send(ORDER)
    refused = stream.send(answer)
    assert (refused.request_id, refused.refusal.field) == ("pass", field)
    assert refused.refusal.code == router_pb2.REFUSAL_CODE_INVALID_ARGUMENT
    assert refused.refusal.message.startswith(f"{field} ")
    assert snapshot(queues) == before
    assert stream.send(ORDER).question.names == ["a", "b"]
    assert stream.send(hits(1, 2)).order.names == ["b", "a"]


def test_a_queue_closed_while_the_engine_looks_refuses_the_order(
    stream: StreamEnd, calls: PrefixCalls
) -> None:
    stream.send(ORDER)
    calls.close_queue(pb.CloseQueueRequest(request_id=new_id(), queue=Q))
    refused = stream.send(hits(1, 2))
    assert (refused.request_id, refused.refusal.code) == ("pass", router_pb2.REFUSAL_CODE_NOT_FOUND)


def test_the_queue_outlives_its_stream_and_an_unanswered_question_is_put_again(
    calls: PrefixCalls, queues: WaitingQueues, stream: StreamEnd
) -> None:
    before = snapshot(queues)
    broken = StreamEnd(calls)
    assert broken.send(ORDER).question.names == ["a", "b"]
    (refused,) = broken.end()
    assert refused.refusal.field == "hit_answer"
    assert snapshot(queues) == before
    assert stream.send(ORDER).question.names == ["a", "b"]
    assert stream.send(hits(0, 0)).order.names == ["a", "b"]


def test_every_call_may_be_a_message_and_is_the_same_call_as_a_unary_one(
    stream: StreamEnd, calls: PrefixCalls, queues: WaitingQueues
) -> None:
    told = pb.SetHitsRequest(request_id="hits", queue=Q, hits=[pb.Hit(name="a", tokens=1)])
    retracted = pb.RequeueRequest(request_id="back", queue=Q, names=["warm"])
    dropped = pb.ForgetRequest(request_id="drop", queue=Q, names=["warm", "b"])
    closed = pb.CloseQueueRequest(request_id="close", queue=Q)
    assert stream.send(pb.ScheduleRequest(set_hits=told)).HasField("set_hits")
    assert stream.send(pb.ScheduleRequest(requeue=retracted)).HasField("requeue")
    assert stream.send(pb.ScheduleRequest(forget=dropped)).forget == pb.ForgetResponse(waiting=2)
    assert calls.forget(dropped) == pb.ForgetResponse(waiting=2)
    assert stream.send(pb.ScheduleRequest(close_queue=closed)).close_queue == pb.CloseQueueResponse(dropped=1)
    assert stream.send(pb.ScheduleRequest(close_queue=closed)).close_queue == pb.CloseQueueResponse(dropped=1)
    assert stream.send(pb.ScheduleRequest()).refusal.message == "call must be set, it is not"
    assert snapshot(queues) == {}
