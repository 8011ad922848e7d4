"""One Schedule stream: calls answered in order, and a question back where an order needs hits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from google.protobuf.message import Message
from grpc import StatusCode

from coresched.service.prefix.calls import PrefixCalls
from coresched.service.refusal import RefusedError
from coresched.service.rpc import tell_refusal, undecodable
from coresched.v1 import prefix_pb2 as pb


class ScheduleStream:
    """The server's end of one stream. A message that cannot be decoded comes as None."""

    def __init__(
        self,
        calls: PrefixCalls,
        tenant: str,
        requests: AsyncIterator[pb.ScheduleRequest | None],
        write: Callable[[pb.ScheduleResponse], Awaitable[None]],
    ) -> None:
        self._calls = calls
        self._tenant = tenant
        self._requests = aiter(requests)
        self._write = write
        self._ended = False
        self._held: list[pb.ScheduleRequest | None] = []  # what came in place of a hit_answer
        self._at_once: Mapping[str, Callable[[Any, str], Message]] = {
            "open_queue": calls.open_queue,
            "close_queue": calls.close_queue,
            "push": calls.push,
            "requeue": calls.requeue,
            "set_hits": calls.set_hits,
            "admitted": calls.admitted,
            "forget": calls.forget,
        }

    async def run(self) -> None:
        """Answer every message until the engine ends the stream. The queues stay."""
        while True:
            request = await self._next()
            if self._ended:
                return
            await self._write(await self._answered(request))

    async def _next(self) -> pb.ScheduleRequest | None:
        """The next message; None too when the stream has ended, as `_ended` then tells."""
        if self._held:
            return self._held.pop()
        try:
            return await anext(self._requests)
        except StopAsyncIteration:
            self._ended = True
            return None

    async def _answered(self, request: pb.ScheduleRequest | None) -> pb.ScheduleResponse:
        answer = pb.ScheduleResponse()
        try:
            if request is None:
                raise undecodable()
            kind = request.WhichOneof("call")
            if kind is None:
                raise RefusedError(StatusCode.INVALID_ARGUMENT, "call", "call must be set, it is not")
            call = getattr(request, kind)
            answer.request_id = call.request_id
            if kind == "order":
                answer.order.CopyFrom(await self._order(request.order))
            elif kind == "hit_answer":
                raise RefusedError(
                    StatusCode.FAILED_PRECONDITION,
                    "hit_answer",
                    "hit_answer must come next after a question, there is none open",
                )
            else:
                getattr(answer, kind).CopyFrom(self._at_once[kind](call, self._tenant))
        except RefusedError as refused:
            tell_refusal("Schedule", answer.refusal, refused)
        return answer

    async def _order(self, call: pb.OrderRequest) -> pb.OrderResponse:
        # While the engine looks up its cache, other connections may push and admit: more may be needed then.
        while asked := self._calls.question(call, self._tenant):
            names = [request.id for request in asked]
            await self._write(
                pb.ScheduleResponse(request_id=call.request_id, question=pb.HitQuestion(names=names))
            )
            answer = await self._next()
            if answer is None or not answer.HasField("hit_answer"):
                if not self._ended:
                    self._held.append(answer)
                raise RefusedError(
                    StatusCode.FAILED_PRECONDITION,
                    "hit_answer",
                    f"hit_answer must come next after a question, here for {len(asked)} requests, "
                    "before any other call",
                )
            self._calls.answer(call, asked, answer.hit_answer)
        return self._calls.order(call, self._tenant)
