"""A token in the metadata of each call, for connections without TLS, where gRPC has no call credentials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

# One method serves all kinds of call, which the types of gRPC know as different ones; hence Any below.
_Next = Callable[..., Any]


class _Details(grpc.ClientCallDetails):
    """A call's details with the token added to its metadata."""

    def __init__(self, details: grpc.ClientCallDetails, header: tuple[str, str]) -> None:
        self.method = details.method
        self.timeout = details.timeout
        self.metadata = (*(details.metadata or ()), header)
        self.credentials = details.credentials
        self.wait_for_ready = details.wait_for_ready
        self.compression = details.compression


class BlockingBearer(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """For `grpc.intercept_channel`."""

    def __init__(self, token: str) -> None:
        self._header = ("authorization", f"Bearer {token}")

    def _call(self, continuation: _Next, details: grpc.ClientCallDetails, requests: Any) -> Any:
        return continuation(_Details(details, self._header), requests)

    intercept_unary_unary: Any = _call
    intercept_unary_stream: Any = _call
    intercept_stream_unary: Any = _call
    intercept_stream_stream: Any = _call


class _Bearer:
    def __init__(self, token: str) -> None:
        self._header = ("authorization", f"Bearer {token}")

    async def _call(self, continuation: _Next, details: grpc.aio.ClientCallDetails, requests: Any) -> Any:
        metadata = grpc.aio.Metadata(*(details.metadata or ()), self._header)
        return await continuation(
            grpc.aio.ClientCallDetails(
                details.method, details.timeout, metadata, details.credentials, details.wait_for_ready
            ),
            requests,
        )


class _UnaryUnary(_Bearer, grpc.aio.UnaryUnaryClientInterceptor):
    intercept_unary_unary: Any = _Bearer._call


class _UnaryStream(_Bearer, grpc.aio.UnaryStreamClientInterceptor):
    intercept_unary_stream: Any = _Bearer._call


class _StreamUnary(_Bearer, grpc.aio.StreamUnaryClientInterceptor):
    intercept_stream_unary: Any = _Bearer._call


class _StreamStream(_Bearer, grpc.aio.StreamStreamClientInterceptor):
    intercept_stream_stream: Any = _Bearer._call


def bearer(token: str) -> list[grpc.aio.ClientInterceptor]:
    """For the interceptors of a grpc.aio channel, which takes one object for one kind of call only."""
    return [_UnaryUnary(token), _UnaryStream(token), _StreamUnary(token), _StreamStream(token)]
