"""Random messages to every call of the Prefix service: what is refused changes nothing, on a stream too."""

import random
from collections.abc import Callable

from google.protobuf.message import DecodeError
from grpc import StatusCode
from hypothesis import given, settings
from hypothesis import strategies as st
from prefix_queues import StreamEnd, new_id, snapshot

from coresched.service.prefix.calls import PrefixCalls
from coresched.service.prefix.queues import WaitingQueues
from coresched.service.refusal import RefusedError
from coresched.v1 import prefix_pb2 as pb

REFUSALS = {
    StatusCode.INVALID_ARGUMENT,
    StatusCode.NOT_FOUND,
    StatusCode.ALREADY_EXISTS,
    StatusCode.FAILED_PRECONDITION,
    StatusCode.RESOURCE_EXHAUSTED,
}
NUMBERS = st.one_of(st.integers(-1, 3), st.sampled_from([2**63 - 1, -(2**63), 1_000_000, 1_000_001]))
TEXTS = st.one_of(st.sampled_from(["w0", "w1", "a", "b", "c", "", "x" * 513]), st.text(max_size=3))
TIMES = st.one_of(st.none(), st.floats())
IDS = st.one_of(st.builds(new_id), st.sampled_from(["", "once", "x" * 129]))
NAMES = st.lists(TEXTS, max_size=4)
COMMON = {"request_id": IDS, "queue": st.one_of(st.just("w0"), TEXTS)}


def some(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(st.none(), strategy)


REQUESTS = st.builds(
    pb.QueuedRequest, name=TEXTS, label=some(TEXTS), queued_at=TIMES, hit_tokens=some(NUMBERS)
)
MESSAGES = st.one_of(
    st.builds(
        pb.ScheduleRequest,
        open_queue=st.builds(pb.OpenQueueRequest, label_capacity=NUMBERS, **COMMON),
    ),
    st.builds(pb.ScheduleRequest, close_queue=st.builds(pb.CloseQueueRequest, **COMMON)),
    st.builds(
        pb.ScheduleRequest,
        push=st.builds(pb.PushRequest, requests=st.lists(REQUESTS, max_size=4), **COMMON),
    ),
    st.builds(
        pb.ScheduleRequest, order=st.builds(pb.OrderRequest, limit=some(NUMBERS), after=some(TEXTS), **COMMON)
    ),
    st.builds(
        pb.ScheduleRequest,
        set_hits=st.builds(
            pb.SetHitsRequest,
            hits=st.lists(st.builds(pb.Hit, name=TEXTS, tokens=NUMBERS), max_size=3),
            **COMMON,
        ),
    ),
    st.builds(pb.ScheduleRequest, admitted=st.builds(pb.AdmittedRequest, names=NAMES, **COMMON)),
    st.builds(pb.ScheduleRequest, requeue=st.builds(pb.RequeueRequest, names=NAMES, **COMMON)),
    st.builds(pb.ScheduleRequest, forget=st.builds(pb.ForgetRequest, names=NAMES, **COMMON)),
    st.builds(
        pb.ScheduleRequest,
        hit_answer=st.builds(pb.HitAnswer, request_id=IDS, tokens=st.lists(NUMBERS, max_size=3)),
    ),
    st.builds(pb.ScheduleRequest),
)
OPENED = pb.OpenQueueRequest(request_id="open", queue="w0", label_capacity=2)


def refusal(call: Callable[[], object]) -> RefusedError | None:
    try:
        call()
    except RefusedError as refused:
        return refused
    return None


@settings(max_examples=250, deadline=None)
@given(messages=st.lists(MESSAGES, max_size=25))
def test_a_refused_call_changes_nothing(messages: list[pb.ScheduleRequest]) -> None:
    queues = WaitingQueues()
    calls = PrefixCalls(queues)
    calls.open_queue(OPENED)
    for message in messages:
        kind = message.WhichOneof("call")
        if kind in (None, "hit_answer"):
            continue
        before = snapshot(queues)
        refused = refusal(lambda kind=kind, message=message: getattr(calls, kind)(getattr(message, kind)))
        if refused is not None:
            assert refused.code in REFUSALS
            assert refused.message.startswith(f"{refused.field} ")
            assert len(refused.message.encode()) < 2000
            assert snapshot(queues) == before


@settings(max_examples=120, deadline=None)
@given(messages=st.lists(MESSAGES, max_size=25))
def test_every_message_of_a_stream_is_answered_and_a_refusal_changes_nothing(
    messages: list[pb.ScheduleRequest],
) -> None:
    queues = WaitingQueues()
    stream = StreamEnd(PrefixCalls(queues))
    stream.send(pb.ScheduleRequest(open_queue=OPENED))
    asking = False
    for message in messages:
        before = snapshot(queues)
        answer = stream.send(message)
        if asking and not message.HasField("hit_answer"):
            assert answer.refusal.field == "hit_answer"
            answer = stream.read()
        asking = answer.HasField("question")
        if asking or answer.HasField("refusal"):
            assert snapshot(queues) == before
    stream.end()


def test_random_bytes_are_refused_or_a_message_like_any_other() -> None:
    chance = random.Random(5)
    queues = WaitingQueues()
    stream = StreamEnd(PrefixCalls(queues))
    stream.send(pb.ScheduleRequest(open_queue=OPENED))
    whole = pb.ScheduleRequest(
        push=pb.PushRequest(request_id="p", queue="w0", requests=[pb.QueuedRequest(name="a", label="k")])
    ).SerializeToString()
    for n in range(3000):
        torn = bytearray(whole if n % 2 else chance.randbytes(chance.randrange(1, 40)))
        for _ in range(chance.randrange(1, 4)):
            torn[chance.randrange(len(torn))] = chance.randrange(256)
        try:
            message = pb.ScheduleRequest.FromString(bytes(torn))
        except DecodeError:
            message = None
        before = snapshot(queues)
        answer = stream.send(message)
        if answer.HasField("refusal"):
            assert snapshot(queues) == before
    assert stream.end() == []
