"""One HTTP/1.1 connection to a worker, which carries one request at a time."""

from __future__ import annotations

import asyncio
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

WHOLE_BYTES = 64 * 1024
"""An answer whose length is known and at most this comes in one piece, which saves a wake-up and a write."""

_LARGEST_HEAD_BYTES = 64 * 1024

_MOST_WAITING_BYTES = 256 * 1024
"""Of a stream that its client does not read; the worker has to wait then."""


class WorkerFailedError(Exception):
    """The worker closed the connection before the end of its answer, or what it says is no HTTP/1.1.

    `began` tells whether the headers were there.
    """

    def __init__(self, reason: str, *, began: bool) -> None:
        super().__init__(reason)
        self.began = began


class WorkerConnection(asyncio.Protocol):
    """Sends a request and reads its answer, for one event loop.

    After `ask` returned, `status`, `reason` and `headers` are the answer's (names in lower case, values
    in UTF-8 with surrogates for what is none), and `body` is all of it, or None if it comes in pieces.
    """

    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes | None
    idle_since: float = 0.0
    """Loop time when it was last given back; kept here by who owns it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._failure: str | None = None
        self._asked = False
        self._lost = False
        self._paused = False
        self._begin()

    def _begin(self) -> None:
        """Forget the last answer; also one of 1xx, which announces another."""
        self.reason = ""
        self.headers = []
        self.body = None
        self._pieces: list[bytes] = []
        self._waiting_bytes = 0
        self._head_bytes = 0
        self._length: int | None = None
        self._chunked = False
        self._has_head = False
        self._complete = False
        self._keeps_alive = False

    @property
    def is_reusable(self) -> bool:
        """Whether another request can be sent on it, as far as is known."""
        if self._lost or self._transport.is_closing():
            return False
        if not self._asked:
            return True
        return self._keeps_alive and not self._pieces and self._transport.get_write_buffer_size() == 0

    def abort(self) -> None:
        """Close it now, which cancels on the worker what is under way."""
        self._transport.abort()

    async def ask(self, head: bytes, body: bytes) -> None:
        """Send a request; returns with the headers of the answer. Raises WorkerFailedError."""
        self._begin()
        self._asked = True
        if len(body) <= WHOLE_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))
        while not (self._complete or (self._has_head and not self._is_short())):
            await self._wait()
        if self._complete and self._is_short():
            self.body = self._taken()

    async def piece(self) -> bytes:
        """The next piece of the body; empty at its end. Raises WorkerFailedError."""
        while not self._pieces:
            if self._complete:
                return b""
            await self._wait()
        return self._taken()

    async def _wait(self) -> None:
        """Until something happened. Raises WorkerFailedError."""
        if self._failure is None:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._failure is not None and not self._complete:
            raise WorkerFailedError(self._failure, began=self._has_head)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _is_short(self) -> bool:
        return self._length is not None and self._length <= WHOLE_BYTES

    def _taken(self) -> bytes:
        pieces, self._pieces, self._waiting_bytes = self._pieces, [], 0
        if self._paused and not self._lost:
            self._paused = False
            self._transport.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _fail(self, reason: str) -> None:
        if self._failure is None:
            self._failure = reason
            self._wake()
        self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        if not self._asked or self._complete:
            self._keeps_alive = False
            self._transport.abort()  # nobody asked
            return
        if not self._has_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._fail("it switched protocols")
        except HttpParserError as error:
            self._fail(f"no HTTP/1.1: {error}")
        if not self._has_head and self._head_bytes > _LARGEST_HEAD_BYTES:
            self._fail(f"its headers have more than {_LARGEST_HEAD_BYTES >> 10} KiB")

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._asked and not self._complete and self._failure is None:
            if exc is None and self._has_head and self._length is None and not self._chunked:
                self._complete = True  # a body without a length ends like this
            else:
                self._failure = f"it closed the connection ({exc or 'end of file'})"
            self._wake()

    # What the parser calls.

    def on_status(self, reason: bytes) -> None:
        self.reason += reason.decode("utf-8", "replace")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._has_head:
            return  # a trailer
        key = name.lower().decode("ascii")
        text = value.decode("utf-8", "surrogateescape").strip(" \t")
        if key == "content-length":
            self._length = int(text)
        elif key == "transfer-encoding":
            self._chunked = "chunked" in text.lower()
        self.headers.append((key, text))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.status >= 200:
            self._has_head = True
            if not self._is_short():
                self._wake()

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._waiting_bytes += len(piece)
        if not self._is_short():
            self._wake()
            if self._waiting_bytes > _MOST_WAITING_BYTES and not self._paused:
                self._paused = True
                self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if not self._has_head:
            self._begin()
            return
        self._complete = True
        self._keeps_alive = self._parser.should_keep_alive()
        self._wake()
