"""The trace that a call belongs to for its caller, as its metadata says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import grpc

_FIELDS = ("traceparent", "tracestate")

# Each call of a grpc.aio server is a task with a context of its own.
_trace: ContextVar[Mapping[str, str]] = ContextVar("trace", default=MappingProxyType({}))


def current_trace() -> Mapping[str, str]:
    """The fields of W3C Trace Context that the call being served came with; empty while they are not read."""
    return _trace.get()


class ReadsTraces(grpc.aio.ServerInterceptor):
    """Keeps the fields of each call for `current_trace`; only needed where spans are made."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        metadata = handler_call_details.invocation_metadata
        found = {key: value for key, value in metadata if key in _FIELDS and isinstance(value, str)}
        if found:
            _trace.set(found)
        return await continuation(handler_call_details)
