"""The calls of the Prefix service, each carried out once however often it is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, cast

from google.protobuf.message import Message
from grpc import StatusCode

from coresched.service.answers import REMEMBERED_ANSWERS, AnswerMemory
from coresched.service.prefix.queue import WaitingQueue, page
from coresched.service.prefix.queues import WaitingQueues
from coresched.service.prefix.request import Pushed, Request, record
from coresched.service.refusal import RefusedError
from coresched.v1 import prefix_pb2 as pb


class _Call(Protocol):
    request_id: str


C = TypeVar("C", bound=_Call)
M = TypeVar("M", bound=Message)

# One of each for all answers: an empty message of one's own would take most of the memory of an answer.
_PUSHED = pb.PushResponse()
_REQUEUED = pb.RequeueResponse()
_HITS_SET = pb.SetHitsResponse()
_ADMITTED = pb.AdmittedResponse()


class PrefixCalls:
    """Requests to answers, for the `tenant` that calls.

    A refused call raises RefusedError and is not remembered: it changed nothing.
    """

    def __init__(self, queues: WaitingQueues, remembered: int = REMEMBERED_ANSWERS) -> None:
        self._queues = queues
        self._remembered = remembered
        self._answers: dict[str, AnswerMemory[Message]] = {}  # of each tenant its own: ids may coincide

    def open_queue(self, call: pb.OpenQueueRequest, tenant: str = "") -> pb.OpenQueueResponse:
        def carry_out(call: pb.OpenQueueRequest) -> pb.OpenQueueResponse:
            queue = self._queues.open(tenant, call.queue, call.label_capacity)
            return pb.OpenQueueResponse(waiting=len(queue))

        return self._once(call, tenant, carry_out)

    def close_queue(self, call: pb.CloseQueueRequest, tenant: str = "") -> pb.CloseQueueResponse:
        def carry_out(call: pb.CloseQueueRequest) -> pb.CloseQueueResponse:
            return pb.CloseQueueResponse(dropped=self._queues.close(tenant, call.queue))

        return self._once(call, tenant, carry_out)

    def push(self, call: pb.PushRequest, tenant: str = "") -> pb.PushResponse:
        def carry_out(call: pb.PushRequest) -> pb.PushResponse:
            self._queues.find(tenant, call.queue).push([_pushed(request) for request in call.requests])
            return _PUSHED

        return self._once(call, tenant, carry_out)

    def requeue(self, call: pb.RequeueRequest, tenant: str = "") -> pb.RequeueResponse:
        def carry_out(call: pb.RequeueRequest) -> pb.RequeueResponse:
            self._queues.find(tenant, call.queue).requeue(call.names)
            return _REQUEUED

        return self._once(call, tenant, carry_out)

    def set_hits(self, call: pb.SetHitsRequest, tenant: str = "") -> pb.SetHitsResponse:
        def carry_out(call: pb.SetHitsRequest) -> pb.SetHitsResponse:
            self._queues.find(tenant, call.queue).set_hits([(hit.name, hit.tokens) for hit in call.hits])
            return _HITS_SET

        return self._once(call, tenant, carry_out)

    def admitted(self, call: pb.AdmittedRequest, tenant: str = "") -> pb.AdmittedResponse:
        def carry_out(call: pb.AdmittedRequest) -> pb.AdmittedResponse:
            self._queues.find(tenant, call.queue).admitted(call.names)
            return _ADMITTED

        return self._once(call, tenant, carry_out)

    def forget(self, call: pb.ForgetRequest, tenant: str = "") -> pb.ForgetResponse:
        def carry_out(call: pb.ForgetRequest) -> pb.ForgetResponse:
            waiting, admitted = self._queues.find(tenant, call.queue).forget(call.names)
            return pb.ForgetResponse(waiting=waiting, admitted=admitted)

        return self._once(call, tenant, carry_out)

    def order(self, call: pb.OrderRequest, tenant: str = "") -> pb.OrderResponse:
        """A pass, the rest of the last one, or the names whose hits are missing for a pass."""
        queue = self._ordered_queue(call, tenant)
        self._queues.counts.orders += 1
        if call.HasField("after"):
            names = queue.names(_limit(call), call.after)
            return pb.OrderResponse(names=names, waiting=len(queue))
        unasked = queue.unasked()
        if unasked:
            names = page(request.id for request in unasked)
            self._queues.counts.questions += len(names)
            return pb.OrderResponse(unasked=names, waiting=len(queue))
        queue.make_pass()
        return pb.OrderResponse(names=queue.names(_limit(call)), waiting=len(queue))

    def question(self, call: pb.OrderRequest, tenant: str = "") -> list[Request]:
        """The requests to ask the engine for before `order` can make its pass, at most a message of them."""
        queue = self._ordered_queue(call, tenant)
        if call.HasField("after"):
            return []
        unasked = queue.unasked()
        asked = unasked[: len(page(request.id for request in unasked))]
        self._queues.counts.questions += len(asked)
        return asked

    def answer(self, call: pb.OrderRequest, asked: Sequence[Request], answer: pb.HitAnswer) -> None:
        """Record what the engine answered to the question of `call`."""
        if answer.request_id != call.request_id:
            raise RefusedError(
                StatusCode.INVALID_ARGUMENT,
                "request_id",
                "request_id of the hit_answer must be that of the order which asks",
            )
        record(asked, answer.tokens)

    def _ordered_queue(self, call: pb.OrderRequest, tenant: str) -> WaitingQueue:
        self._memory(tenant).find(call.request_id, call)  # refuses an id of another call; finds nothing
        _limit(call)
        return self._queues.find(tenant, call.queue)

    def _memory(self, tenant: str) -> AnswerMemory[Message]:
        if tenant not in self._answers:
            self._answers[tenant] = AnswerMemory(self._remembered)
        return self._answers[tenant]

    def _once(self, call: C, tenant: str, carry_out: Callable[[C], M]) -> M:
        message = cast(Message, call)
        answers = self._memory(tenant)
        # The digest in the memory covers the kind of the call, and so of its answer.
        answer = cast("M | None", answers.find(call.request_id, message))
        if answer is None:
            answer = carry_out(call)
            answers.keep(call.request_id, message, answer)
        return answer


def _limit(call: pb.OrderRequest) -> int | None:
    if not call.HasField("limit"):
        return None
    if call.limit < 1:
        raise RefusedError(
            StatusCode.INVALID_ARGUMENT,
            "limit",
            f"limit must be at least 1 name, got {call.limit}; leave it out for as many as fit",
        )
    return call.limit


def _pushed(request: pb.QueuedRequest) -> Pushed:
    return Pushed(
        request.name,
        request.label if request.HasField("label") else None,
        request.queued_at if request.HasField("queued_at") else None,
        request.hit_tokens if request.HasField("hit_tokens") else None,
    )
