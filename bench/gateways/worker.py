"""`python -m bench.gateways.worker N [PORT]`: N fake workers in one process, which do as the request says.

They answer from memory, on one thread, so that the gateway between them and the client is what is measured.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from functools import partial
from typing import cast

import uvloop

from bench.gateways import exchange

HELD = "/held/"
"""GET /held/N from any worker: answered once they hold N requests, with how many each worker holds."""
RELEASE = "/release"
"""GET it from any worker: all workers answer what they hold."""

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
# sglang-router calls max_tokens by its newer name.
_TOKENS = re.compile(rb'"max_(?:completion_)?tokens": ?(\d+)')
_STREAM = re.compile(rb'"stream": ?true')


def _message(head: str, body: bytes = b"") -> bytes:
    return (head.replace("\n", "\r\n") + "\r\n\r\n").encode() + body


def _json(body: bytes) -> bytes:
    return _message(f"HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: {len(body)}", body)


class Answers:
    """What a worker says, made once."""

    def __init__(self, index: int) -> None:
        self.index = index
        name = f"{exchange.WORKER_HEADER}: {index}"
        whole = exchange.answer()
        self.whole = _message(
            f"HTTP/1.1 200 OK\n{name}\nContent-Type: application/json\nContent-Length: {len(whole)}", whole
        )
        self.start = _message(
            f"HTTP/1.1 200 OK\n{name}\nContent-Type: text/event-stream\nTransfer-Encoding: chunked"
        )
        self.pieces = [f"{len(event):x}\r\n".encode() + event + b"\r\n" for event in exchange.events()]
        self.end = b"0\r\n\r\n"
        # What the peers ask at the start: the models, and SGLang's own pages.
        self.about = _json(
            json.dumps(
                {
                    "object": "list",
                    "data": [{"id": exchange.MODEL, "object": "model", "owned_by": "bench"}],
                    "model_path": exchange.MODEL,
                    "served_model_name": exchange.MODEL,
                    "is_generation": True,
                }
            ).encode()
        )


class Held:
    """What the workers hold, and who waits for how much of it."""

    def __init__(self, workers: int) -> None:
        self._held: list[list[Callable[[], None]]] = [[] for _ in range(workers)]
        self._waiting: tuple[int, Callable[[list[int]], None]] | None = None

    def add(self, worker: int, finish: Callable[[], None]) -> None:
        self._held[worker].append(finish)
        self._tell()

    def wait_for(self, count: int, told: Callable[[list[int]], None]) -> None:
        self._waiting = (count, told)
        self._tell()

    def release(self) -> None:
        for finishes in self._held:
            for finish in finishes:
                finish()
            finishes.clear()

    def _tell(self) -> None:
        loads = [len(finishes) for finishes in self._held]
        if self._waiting is not None and sum(loads) >= self._waiting[0]:
            _, told = self._waiting
            self._waiting = None
            told(loads)


class Connection(asyncio.Protocol):
    """One connection to a worker; a request on it is answered before the next one is read."""

    def __init__(self, answers: Answers, held: Held) -> None:
        self._answers = answers
        self._held = held
        self._received = b""
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        received = self._received + data if self._received else data
        end = received.find(b"\r\n\r\n")
        if end < 0:
            self._received = received
            return
        length = _LENGTH.search(received, 0, end)
        size = end + 4 + (int(length.group(1)) if length else 0)
        if len(received) < size:
            self._received = received
            return
        self._received = received[size:]
        self._serve(received, end)

    def _serve(self, request: bytes, end: int) -> None:
        if request.startswith(b"GET "):
            self._control(request.split(b" ", 2)[1].decode())
            return
        tokens = _TOKENS.search(request, end)
        if tokens is None:
            # No HTTP/1.1 (peers try gRPC first), or a body without length or with other fields than it had.
            self._transport.abort()
            return
        finish = self._stream if _STREAM.search(request, end) else self._whole
        count = int(tokens.group(1))
        if count == 1:
            finish()
        elif count <= exchange.LONGEST_TOKENS:
            self._loop.call_later(count / 1000, finish)
        else:
            self._held.add(self._answers.index, finish)

    def _control(self, path: str) -> None:
        if path.startswith(HELD):
            self._held.wait_for(
                int(path.removeprefix(HELD)),
                lambda loads: self._transport.write(_json(json.dumps(loads).encode())),
            )
            return
        if path == RELEASE:
            self._held.release()
        self._transport.write(self._answers.about)

    def _whole(self) -> None:
        if not self._transport.is_closing():  # a client may leave; uvloop refuses a write then
            self._transport.write(self._answers.whole)

    def _stream(self) -> None:
        """Events one after another, as an engine's tokens come."""
        if not self._transport.is_closing():
            self._transport.write(self._answers.start)
            self._next(0)

    def _next(self, place: int) -> None:
        pieces = self._answers.pieces
        if self._transport.is_closing():
            return
        if place < len(pieces):
            self._transport.write(pieces[place])
            self._loop.call_soon(self._next, place + 1)
        else:
            self._transport.write(self._answers.end)


async def serve(count: int, first_port: int = 0) -> None:
    """Print the ports and answer until the standard input ends. With a port, the first worker has that."""
    loop = asyncio.get_running_loop()
    held = Held(count)
    ports = []
    for index in range(count):
        connection = partial(Connection, Answers(index), held)
        server = await loop.create_server(connection, "127.0.0.1", 0 if index else first_port)
        ports.append(server.sockets[0].getsockname()[1])
    print(*ports, flush=True)
    await loop.run_in_executor(None, sys.stdin.buffer.read)


if __name__ == "__main__":
    uvloop.run(serve(*map(int, sys.argv[1:])))
