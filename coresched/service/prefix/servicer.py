"""The Prefix service over gRPC: messages in, answers or status codes out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar, cast

import grpc
from google.protobuf.message import Message

from coresched.service.identity import current_tenant
from coresched.service.prefix.calls import PrefixCalls
from coresched.service.prefix.schedule import ScheduleStream
from coresched.service.rpc import decoder, unary
from coresched.v1 import prefix_pb2 as pb

PREFIX = pb.DESCRIPTOR.services_by_name["Prefix"].full_name

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


def prefix_handler(calls: PrefixCalls) -> grpc.GenericRpcHandler:
    """The service, to be added to a server. Every call is carried out without an await in it."""

    def method(kind: type[Q], carry_out: Callable[[Q, str], A]) -> grpc.RpcMethodHandler[Any, Any]:
        return unary(kind, lambda call: carry_out(call, current_tenant()))

    async def schedule(
        requests: AsyncIterator[pb.ScheduleRequest | None],
        context: grpc.aio.ServicerContext[pb.ScheduleRequest, pb.ScheduleResponse],
    ) -> None:
        await ScheduleStream(calls, current_tenant(), requests, context.write).run()

    return grpc.method_handlers_generic_handler(
        PREFIX,
        {
            "OpenQueue": method(pb.OpenQueueRequest, calls.open_queue),
            "CloseQueue": method(pb.CloseQueueRequest, calls.close_queue),
            "Push": method(pb.PushRequest, calls.push),
            "Requeue": method(pb.RequeueRequest, calls.requeue),
            "Order": method(pb.OrderRequest, calls.order),
            "SetHits": method(pb.SetHitsRequest, calls.set_hits),
            "Admitted": method(pb.AdmittedRequest, calls.admitted),
            "Forget": method(pb.ForgetRequest, calls.forget),
            "Schedule": grpc.stream_stream_rpc_method_handler(
                cast(Any, schedule),  # the types know synchronous servers only
                request_deserializer=cast(Any, decoder(pb.ScheduleRequest)),
                response_serializer=pb.ScheduleResponse.SerializeToString,
            ),
        },
    )
