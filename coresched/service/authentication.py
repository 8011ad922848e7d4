"""Bearer tokens: each call of a grpc.aio server is served as the tenant of its token, or refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, NoReturn, TypeAlias, cast

import grpc

from coresched.service.identity import act_as
from coresched.service.refusal import RefusedError
from coresched.service.refusals import refusals
from coresched.service.tokens import Tokens

_OPEN_TO_ALL = "/grpc.health.v1.Health/"  # probes of an orchestrator have no token
_FIRST_MESSAGE_S = 1.0
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # generic for the types only


class Authentication(grpc.aio.ServerInterceptor):
    """Reads ``authorization: Bearer <token>`` from the metadata of each call; health needs none.

    ``tokens`` may be replaced at any time: the next call is checked against the new ones. A stream is checked
    once, when it opens.
    """

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler | None:
        if handler_call_details.method.startswith(_OPEN_TO_ALL):
            return await continuation(handler_call_details)
        token = _bearer(handler_call_details)
        if token is None:
            return _refused("metadata authorization must be there once, as Bearer and the token of a tenant")
        caller = self.tokens.caller(token)
        if caller is None:
            return _refused("metadata authorization must have a token that this server knows, it has another")
        act_as(caller)
        return await continuation(handler_call_details)


def _bearer(details: grpc.HandlerCallDetails) -> str | None:
    values = [value for key, value in details.invocation_metadata if key == "authorization"]
    if len(values) != 1 or not isinstance(values[0], str):
        return None
    scheme, _, token = values[0].partition(" ")
    return token if scheme.lower() == "bearer" and token else None


def _refused(why: str) -> _Handler:
    async def refuse(
        requests: AsyncIterator[object], context: grpc.aio.ServicerContext[Any, Any]
    ) -> NoReturn:
        # A grpc.aio client whose first message meets the end of the call reports INTERNAL in place of this.
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(anext(requests, None), _FIRST_MESSAGE_S)
        refusals.note("any", RefusedError(grpc.StatusCode.UNAUTHENTICATED, "authorization", why))
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, why)

    # Whatever kind the method is of: this one alone can answer without a message.
    return grpc.stream_stream_rpc_method_handler(cast(Any, refuse))
