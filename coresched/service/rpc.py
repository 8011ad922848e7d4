"""What every service of this package needs to stand behind gRPC: decoding, refusals, unary methods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from operator import methodcaller
from typing import Any, TypeVar, cast

import grpc
from google.protobuf.message import DecodeError, Message

from coresched.service.refusal import RefusedError
from coresched.service.refusals import refusals
from coresched.v1 import router_pb2 as pb

UNDECODABLE = "the message must be of the service's version and its texts in UTF-8, it cannot be decoded"

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


def decoder(kind: type[Q]) -> Callable[[bytes], Q | None]:
    """A deserializer that returns None for what is no such message: raising ends in the status UNKNOWN."""

    parse = kind.FromString

    def decode(data: bytes) -> Q | None:
        try:
            return parse(data)
        except DecodeError:
            return None

    return decode


def unary(kind: type[Q], carry_out: Callable[[Q], A | Awaitable[A]]) -> grpc.RpcMethodHandler[Any, Any]:
    """A unary method: `carry_out`, a function or a coroutine function, turns a request into its answer.

    A RefusedError of its becomes the status of the call, and so does a message that cannot be decoded.
    """

    name = kind.DESCRIPTOR.name.removesuffix("Request")
    waits = iscoroutinefunction(carry_out)  # asked once: to ask what came back costs more than most calls

    async def answer(request: Q | None, context: grpc.aio.ServicerContext[Any, Any]) -> A:
        try:
            if request is None:
                raise undecodable()
            answered = carry_out(request)
            return await cast(Awaitable[A], answered) if waits else cast(A, answered)
        except RefusedError as refused:
            refusals.note(name, refused)
            await context.abort(refused.code, refused.message)

    return grpc.unary_unary_rpc_method_handler(
        cast(Any, answer),  # the types know synchronous servers only
        request_deserializer=cast(Any, decoder(kind)),
        response_serializer=methodcaller("SerializeToString"),
    )


def undecodable() -> RefusedError:
    return RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "", UNDECODABLE)


def tell_refusal(rpc: str, refusal: pb.Refusal, refused: RefusedError) -> None:
    """Fill in the message that stands for a status on a stream; its codes are the numbers of the statuses."""
    refusals.note(rpc, refused)
    refusal.code = cast(pb.RefusalCode, refused.code.value[0])
    refusal.field = refused.field
    refusal.message = refused.message
