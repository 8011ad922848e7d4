"""Responses whose request stays in flight on its worker to the end of their body, however that comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx

from coresched.client.shared import Flight
from coresched.httpx.recorded import answered, failed
from coresched.recording.requests import AttemptRecord

WORKER = "coresched_worker"
"""Response extension: the name of the worker that answered."""

LEFT = "its client left before the end of the answer"


class _AsyncBody(httpx.AsyncByteStream):
    """Read to the end, failed, cancelled, closed or left to the garbage collection: the flight ends."""

    def __init__(self, body: httpx.AsyncByteStream, flight: Flight, attempt: AttemptRecord | None) -> None:
        self._body = body
        self._attempt = attempt
        self._flight = flight

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._body:
                if self._attempt is not None:
                    self._attempt.piece(part)
                yield part
            if self._attempt is not None:
                self._attempt.ended()
        except BaseException as error:
            failed(self._attempt, error)
            raise
        finally:
            self._flight.end()

    async def aclose(self) -> None:
        try:
            await self._body.aclose()
        finally:
            self._flight.end()
            if self._attempt is not None:
                self._attempt.ended(LEFT)


class _Body(httpx.SyncByteStream):
    """The same for a blocking client."""

    def __init__(self, body: httpx.SyncByteStream, flight: Flight, attempt: AttemptRecord | None) -> None:
        self._body = body
        self._attempt = attempt
        self._flight = flight

    def __iter__(self) -> Iterator[bytes]:
        try:
            for part in self._body:
                if self._attempt is not None:
                    self._attempt.piece(part)
                yield part
            if self._attempt is not None:
                self._attempt.ended()
        except BaseException as error:
            failed(self._attempt, error)
            raise
        finally:
            self._flight.end()

    def close(self) -> None:
        try:
            self._body.close()
        finally:
            self._flight.end()
            if self._attempt is not None:
                self._attempt.ended(LEFT)


def counted(response: httpx.Response, flight: Flight, attempt: AttemptRecord | None) -> httpx.Response:
    """The response, which now ends the flight and its record."""
    answered(attempt, response)
    response.extensions = {**response.extensions, WORKER: flight.worker}
    if response.is_closed:  # a transport without a network has read it already
        flight.end()
        if attempt is not None:
            attempt.piece(response.content)
            attempt.ended()
    elif isinstance(response.stream, httpx.AsyncByteStream):
        response.stream = _AsyncBody(response.stream, flight, attempt)
    else:
        response.stream = _Body(response.stream, flight, attempt)
    return response
