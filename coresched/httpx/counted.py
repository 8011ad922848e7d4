"""Responses whose request stays in flight on its worker to the end of their body, however that comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx

from coresched.client.shared import Flight

WORKER = "coresched_worker"
"""Response extension: the name of the worker that answered."""


class _AsyncBody(httpx.AsyncByteStream):
    """Read to the end, failed, cancelled, closed or left to the garbage collection: the flight ends."""

    def __init__(self, body: httpx.AsyncByteStream, flight: Flight) -> None:
        self._body = body
        self._flight = flight

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._body:
                yield part
        finally:
            self._flight.end()

    async def aclose(self) -> None:
        try:
            await self._body.aclose()
        finally:
            self._flight.end()


class _Body(httpx.SyncByteStream):
    """The same for a blocking client."""

    def __init__(self, body: httpx.SyncByteStream, flight: Flight) -> None:
        self._body = body
        self._flight = flight

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._body
        finally:
            self._flight.end()

    def close(self) -> None:
        try:
            self._body.close()
        finally:
            self._flight.end()


def counted(response: httpx.Response, flight: Flight) -> httpx.Response:
    """The response, which now ends the flight."""
    response.extensions = {**response.extensions, WORKER: flight.worker}
    if response.is_closed:  # a transport without a network has read it already
        flight.end()
    elif isinstance(response.stream, httpx.AsyncByteStream):
        response.stream = _AsyncBody(response.stream, flight)
    else:
        response.stream = _Body(response.stream, flight)
    return response
