"""A small HTTP/1.1 client over asyncio, so that the load generator takes little of the two cores.

It reads what gateways send: answers with a Content-Length or in chunks, over connections that stay open.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from bench.gateways.exchange import WORKER_HEADER

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_WORKER = re.compile(rf"\r\n{WORKER_HEADER}: *(\d+)".encode(), re.IGNORECASE)


class UnexpectedAnswerError(Exception):
    """An answer that is no completion of a worker's, or no HTTP that this client reads."""


class Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._answered: asyncio.Future[int] | None = None
        self._body = -1  # where the body begins, once the head is there
        self._length = -1  # of the body; -1 in chunks
        self._worker = -1
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    async def send(self, request: bytes) -> int:
        """The index of the worker that answered, once the answer has been read to its end.

        Raises UnexpectedAnswerError unless that is a whole answer 200 of a worker.
        """
        self._answered = self._loop.create_future()
        self.transport.write(request)
        return await self._answered

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        if self._body < 0:
            end = received.find(b"\r\n\r\n")
            if end < 0:
                return
            self._read_head(end)
        if self._length >= 0:
            whole = len(received) >= self._body + self._length
        else:
            whole = received.endswith(b"\r\n0\r\n\r\n") and self._chunks_end()
        if whole and self._answered is not None and not self._answered.done():
            self._answered.set_result(self._worker)
            received.clear()
            self._body = -1

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the connection was closed: {exc or 'end of file'}")

    def _read_head(self, end: int) -> None:
        received = self._received
        self._body = end + 4
        length = _LENGTH.search(received, 0, end)
        worker = _WORKER.search(received, 0, end)
        if length is None and not _CHUNKED.search(received, 0, end):
            self._fail(f"neither length nor chunks in {bytes(received[:end])!r}")
        elif received[9:12] != b"200" or worker is None:
            self._fail(f"no worker's answer: {bytes(received[:500])!r}")
        self._length = -1 if length is None else int(length.group(1))
        self._worker = -1 if worker is None else int(worker.group(1))

    def _chunks_end(self) -> bool:
        """Whether the last chunk is there; what ends like one may be inside another."""
        received, place = self._received, self._body
        while True:
            line = received.find(b"\r\n", place)
            if line < 0:
                return False
            size = int(received[place:line], 16)
            place = line + 4 + size
            if size == 0:
                return place == len(received)
            if place > len(received):
                return False

    def _fail(self, why: str) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(UnexpectedAnswerError(why))


@asynccontextmanager
async def connections(port: int, count: int) -> AsyncIterator[list[Connection]]:
    """That many open connections to a port of this machine."""
    loop = asyncio.get_running_loop()
    opened: list[Connection] = []
    try:
        for _ in range(count):
            _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
            opened.append(connection)
        yield opened
    finally:
        for connection in opened:
            connection.transport.abort()


async def got(port: int, path: str) -> bytes:
    """The body that a GET is answered with; for asking the fake workers, not timed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: workers\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if length is None:
            raise UnexpectedAnswerError(f"no length in {head!r}")
        return await reader.readexactly(int(length.group(1)))
    finally:
        writer.close()
