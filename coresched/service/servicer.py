"""The Router service over gRPC: messages in, answers or status codes out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar, cast

import grpc
from google.protobuf.message import DecodeError, Message

from coresched.service.calls import RouterCalls
from coresched.service.refusal import RefusedError
from coresched.service.table import Owner
from coresched.v1 import router_pb2 as pb

ROUTER = pb.DESCRIPTOR.services_by_name["Router"].full_name

_UNDECODABLE = "the message must be of the service's version and its texts in UTF-8, it cannot be decoded"
_REFUSAL_CODES = {
    grpc.StatusCode.INVALID_ARGUMENT: pb.REFUSAL_CODE_INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND: pb.REFUSAL_CODE_NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION: pb.REFUSAL_CODE_FAILED_PRECONDITION,
}

_Context = grpc.aio.ServicerContext[Any, Any]
_Stream = grpc.aio.ServicerContext[pb.RouteStreamRequest, pb.RouteStreamResponse]
Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


def router_handler(calls: RouterCalls) -> grpc.GenericRpcHandler:
    """The service, to be added to a server.

    Every call is carried out without an await in it, so that calls never interleave. Not registered by the
    generated code, with which a message that cannot be decoded ends in the status UNKNOWN.
    """
    return grpc.method_handlers_generic_handler(
        ROUTER,
        {
            "RegisterWorker": _unary(pb.RegisterWorkerRequest, calls.register_worker),
            "DrainWorker": _unary(pb.DrainWorkerRequest, calls.drain_worker),
            "RemoveWorker": _unary(pb.RemoveWorkerRequest, calls.remove_worker),
            "ListWorkers": _unary(pb.ListWorkersRequest, calls.list_workers),
            "Route": _unary(pb.RouteRequest, calls.route),
            "Release": _unary(pb.ReleaseRequest, calls.release),
            "RouteStream": grpc.stream_stream_rpc_method_handler(
                cast(Any, _stream(calls)),  # the types know synchronous servers only
                request_deserializer=cast(Any, _decoder(pb.RouteStreamRequest)),
                response_serializer=pb.RouteStreamResponse.SerializeToString,
            ),
        },
    )


def _decoder(kind: type[Q]) -> Callable[[bytes], Q | None]:
    def decode(data: bytes) -> Q | None:
        try:
            return kind.FromString(data)
        except DecodeError:
            return None

    return decode


def _unary(kind: type[Q], carry_out: Callable[[Q], A]) -> grpc.RpcMethodHandler[Any, Any]:
    async def answer(request: Q | None, context: _Context) -> A:
        if request is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, _UNDECODABLE)
        try:
            return carry_out(request)
        except RefusedError as refused:
            await context.abort(refused.code, refused.message)

    return grpc.unary_unary_rpc_method_handler(
        cast(Any, answer),
        request_deserializer=cast(Any, _decoder(kind)),
        response_serializer=lambda message: message.SerializeToString(),
    )


def _stream(
    calls: RouterCalls,
) -> Callable[[AsyncIterator[pb.RouteStreamRequest | None], _Stream], Awaitable[None]]:
    async def answer_each(requests: AsyncIterator[pb.RouteStreamRequest | None], context: _Stream) -> None:
        # Not a generator: one that is cancelled while its answer is written would be closed some time later.
        owner = Owner()
        try:
            async for request in requests:
                await context.write(_answer_on_stream(calls, request, owner))
        finally:
            calls.end_stream(owner)

    return answer_each


def _answer_on_stream(
    calls: RouterCalls, request: pb.RouteStreamRequest | None, owner: Owner
) -> pb.RouteStreamResponse:
    answer = pb.RouteStreamResponse()
    try:
        if request is None:
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "", _UNDECODABLE)
        if request.HasField("route"):
            answer.request_id = request.route.request_id
            answer.route.CopyFrom(calls.route(request.route, owner))
        elif request.HasField("release"):
            answer.request_id = request.release.request_id
            answer.release.CopyFrom(calls.release(request.release, owner))
        else:
            raise RefusedError(
                grpc.StatusCode.INVALID_ARGUMENT, "call", "call must be a route or a release, it is not set"
            )
    except RefusedError as refused:
        answer.refusal.code = _REFUSAL_CODES[refused.code]
        answer.refusal.field = refused.field
        answer.refusal.message = refused.message
    return answer
