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


class BearerChannel(grpc.aio.Channel):
    """A channel whose calls all carry the token.

    Not by interceptors: those of grpc.aio hand out other call objects, which leave tasks behind when a stream
    ends early.
    """

    def __init__(self, channel: grpc.aio.Channel, token: str) -> None:
        self._channel = channel
        self._header = ("authorization", f"Bearer {token}")

    def _with_token(self, call: _Next) -> Any:
        def call_with_token(*args: Any, metadata: Any = None, **options: Any) -> Any:
            return call(*args, metadata=(*(metadata or ()), self._header), **options)

        return call_with_token

    def unary_unary(self, *args: Any, **options: Any) -> Any:
        return self._with_token(self._channel.unary_unary(*args, **options))

    def unary_stream(self, *args: Any, **options: Any) -> Any:
        return self._with_token(self._channel.unary_stream(*args, **options))

    def stream_unary(self, *args: Any, **options: Any) -> Any:
        return self._with_token(self._channel.stream_unary(*args, **options))

    def stream_stream(self, *args: Any, **options: Any) -> Any:
        return self._with_token(self._channel.stream_stream(*args, **options))

    async def __aenter__(self) -> BearerChannel:
        await self._channel.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> bool | None:
        return await self._channel.__aexit__(*raised)

    async def close(self, grace: float | None = None) -> None:
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._channel.channel_ready()
