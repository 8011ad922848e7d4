"""The Router service over gRPC: messages in, answers or status codes out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar, cast

import grpc
from google.protobuf.message import Message

from coresched.service.calls import RouterCalls
from coresched.service.refusal import RefusedError
from coresched.service.rpc import decoder, tell_refusal, unary, undecodable
from coresched.service.table import Owner
from coresched.v1 import router_pb2 as pb

ROUTER = pb.DESCRIPTOR.services_by_name["Router"].full_name

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

_Stream = grpc.aio.ServicerContext[pb.RouteStreamRequest, pb.RouteStreamResponse]


def router_handler(calls: RouterCalls) -> grpc.GenericRpcHandler:
    """The service, to be added to a server.

    Every call is carried out without an await in it, so that calls never interleave; answers about workers
    wait until they are recorded. Not registered by the generated code, with which a message that cannot be
    decoded ends in the status UNKNOWN.
    """

    def recorded(carry_out: Callable[[Q], A]) -> Callable[[Q], Awaitable[A]]:
        async def answer(call: Q) -> A:
            answer = carry_out(call)
            await calls.recorded()
            return answer

        return answer

    return grpc.method_handlers_generic_handler(
        ROUTER,
        {
            "RegisterWorker": unary(pb.RegisterWorkerRequest, recorded(calls.register_worker)),
            "DrainWorker": unary(pb.DrainWorkerRequest, recorded(calls.drain_worker)),
            "RemoveWorker": unary(pb.RemoveWorkerRequest, recorded(calls.remove_worker)),
            "ListWorkers": unary(pb.ListWorkersRequest, calls.list_workers),
            "Route": unary(pb.RouteRequest, calls.route),
            "Release": unary(pb.ReleaseRequest, calls.release),
            "RouteStream": grpc.stream_stream_rpc_method_handler(
                cast(Any, _stream(calls)),  # the types know synchronous servers only
                request_deserializer=cast(Any, decoder(pb.RouteStreamRequest)),
                response_serializer=pb.RouteStreamResponse.SerializeToString,
            ),
        },
    )


def _stream(
    calls: RouterCalls,
) -> Callable[[AsyncIterator[pb.RouteStreamRequest | None], _Stream], Awaitable[None]]:
    async def answer_each(_: AsyncIterator[pb.RouteStreamRequest | None], context: _Stream) -> None:
        # Not a generator: one that is cancelled while its answer is written would be closed some time later.
        # Reads from the context: the iterator is one more generator for each message to go through.
        owner = Owner()
        write = context.write
        read: Callable[[], Awaitable[Any]] = context.read  # EOF in the end, which the types leave out
        try:
            while (request := await read()) is not grpc.aio.EOF:
                await write(_answer_on_stream(calls, request, owner))
        finally:
            calls.end_stream(owner)

    return answer_each


def _answer_on_stream(
    calls: RouterCalls, request: pb.RouteStreamRequest | None, owner: Owner
) -> pb.RouteStreamResponse:
    answer = pb.RouteStreamResponse()
    try:
        if request is None:
            raise undecodable()
        if request.HasField("route"):
            route = request.route
            answer.request_id = route.request_id
            answer.route.worker = calls.placed(route, owner).worker
        elif request.HasField("release"):
            release = request.release
            answer.request_id = release.request_id
            calls.release(release, owner)
            answer.release.SetInParent()
        elif request.HasField("hold"):
            hold = request.hold
            answer.request_id = hold.request_id
            calls.hold(hold, owner)
            answer.hold.SetInParent()
        else:
            raise RefusedError(
                grpc.StatusCode.INVALID_ARGUMENT,
                "call",
                "call must be a route, a release or a hold, it is not set",
            )
    except RefusedError as refused:
        tell_refusal("RouteStream", answer.refusal, refused)
    return answer
