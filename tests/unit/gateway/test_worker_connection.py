"""A connection to a worker: what an answer means, however its bytes arrive, and when it can be used again."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coresched.gateway.connection import WHOLE_BYTES, WorkerConnection, WorkerFailedError

LONG = WHOLE_BYTES + 1


class Wire(asyncio.Transport):
    """The far end: keeps what is written, and whether the connection was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.unsent = 0
        self.aborted = False
        self.reading = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


def connected() -> tuple[WorkerConnection, Wire]:
    connection, wire = WorkerConnection(), Wire()
    connection.connection_made(wire)
    return connection, wire


async def asked(connection: WorkerConnection) -> "asyncio.Task[None]":
    """A request under way; the task ends with the headers of its answer."""
    task = asyncio.create_task(connection.ask(b"POST / HTTP/1.1\r\n\r\n", b"{}"))
    await asyncio.sleep(0)
    return task


async def rest_of(connection: WorkerConnection) -> bytes:
    pieces = []
    while piece := await connection.piece():
        pieces.append(piece)
    return b"".join(pieces)


async def exchanged(*received: bytes, closed: bool = False) -> tuple[WorkerConnection, Wire, bytes]:
    """A connection whose request was answered by these pieces, and the answer's whole body."""
    connection, wire = connected()
    task = await asked(connection)
    for piece in received:
        connection.data_received(piece)
    if closed:
        connection.connection_lost(None)
    await asyncio.wait_for(task, 20)
    body = await rest_of(connection) if connection.body is None else connection.body
    return connection, wire, body


def split(data: bytes, places: Sequence[float]) -> list[bytes]:
    cuts = [0, *sorted(int(place * len(data)) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(cuts) if end > start]


def framed(framing: str, body: bytes) -> bytes:
    if framing == "length":
        return b"Content-Length: %d\r\n\r\n" % len(body) + body
    if framing == "chunks":
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in split(body, [0.3, 0.7]))
        return b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\nX-Trailer: 1\r\n\r\n"
    return b"\r\n" + body


@settings(max_examples=60)
@given(
    framing=st.sampled_from(["length", "chunks", "end of file"]),
    body=st.binary(max_size=200) | st.integers(0, 2).map(lambda more: b"x" * (WHOLE_BYTES + more)),
    informational=st.booleans(),
    places=st.lists(st.floats(0, 1), max_size=8),
)
def test_an_answer_is_the_same_however_it_arrives(
    framing: str, body: bytes, informational: bool, places: list[float]
) -> None:
    head = b"HTTP/1.1 201 Made it\r\nX-A: 1 \r\nx-a: Stra\xc3\x9fe\r\n"
    sent = (b"HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\n" if informational else b"") + head
    sent += framed(framing, body)
    is_open = framing != "end of file"

    async def run() -> None:
        connection, wire, got = await exchanged(*split(sent, places), closed=not is_open)
        assert (connection.status, connection.reason, got) == (201, "Made it", body)
        assert connection.headers[:2] == [("x-a", "1"), ("x-a", "Straße")]
        assert "x-trailer" not in dict(connection.headers)
        assert (connection.body is not None) == (framing == "length" and len(body) <= WHOLE_BYTES)
        assert connection.is_reusable == is_open
        assert not wire.aborted

    asyncio.run(run())


async def test_a_connection_carries_one_answer_after_another() -> None:
    connection, wire = connected()
    for number in range(3):
        assert connection.is_reusable
        task = await asked(connection)
        connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number)
        await task
        assert connection.body == b"%d" % number
    assert wire.sent == b"POST / HTTP/1.1\r\n\r\n{}" * 3


@pytest.mark.parametrize("end", [b"Connection: close\r\n", b"Connection: keep-alive, close\r\n"])
async def test_a_worker_may_close_after_its_answer(end: bytes) -> None:
    connection, _, _ = await exchanged(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + end + b"\r\n")
    assert not connection.is_reusable


async def test_a_request_still_being_sent_keeps_its_connection_from_another() -> None:
    connection, wire, _ = await exchanged(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
    wire.unsent = 1
    assert not connection.is_reusable


@pytest.mark.parametrize("early", [True, False])
async def test_what_nobody_asked_for_closes_the_connection(early: bool) -> None:
    connection, wire = connected()
    if not early:
        connection, wire, _ = await exchanged(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
    assert wire.aborted
    assert not connection.is_reusable


@pytest.mark.parametrize(
    ("received", "why"),
    [
        (b"SSH-2.0-x\r\n\r\n", "no HTTP/1.1: "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "no HTTP/1.1: "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "no HTTP/1.1: "),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            "switched protocols",
        ),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * (64 << 10), "more than 64 KiB"),
    ],
)
async def test_what_is_no_answer_is_a_failure(received: bytes, why: str) -> None:
    connection, wire = connected()
    task = await asked(connection)
    connection.data_received(received)
    with pytest.raises(WorkerFailedError, match=why):
        await task
    assert wire.aborted


@pytest.mark.parametrize(
    ("received", "began"),
    [
        (b"", False),
        (b"HTTP/1.1 200 OK\r\n", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", True),
    ],
)
async def test_a_connection_that_closes_before_the_answer_failed(received: bytes, began: bool) -> None:
    connection, _ = connected()
    task = await asked(connection)
    if received:
        connection.data_received(received)
    connection.connection_lost(None)
    with pytest.raises(WorkerFailedError, match=r"it closed the connection \(end of file\)") as failed:
        await task
    assert failed.value.began is began


@pytest.mark.parametrize("framing", [b"Content-Length: %d" % LONG, b"Transfer-Encoding: chunked"])
async def test_what_came_of_a_stream_is_read_before_its_failure(framing: bytes) -> None:
    connection, _ = connected()
    task = await asked(connection)
    connection.data_received(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n3\r\nabc\r\n")
    await task
    connection.connection_lost(ConnectionResetError("reset"))
    assert b"abc" in await connection.piece()
    with pytest.raises(WorkerFailedError, match=r"\(reset\)"):
        await connection.piece()


async def test_a_stream_that_nobody_reads_holds_the_worker() -> None:
    connection, wire = connected()
    task = await asked(connection)
    connection.data_received(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (256 << 10))
    await task
    assert wire.reading
    connection.data_received(b"y")
    assert not wire.reading
    assert len(await connection.piece()) == (256 << 10) + 1
    assert wire.reading


async def test_a_cancelled_request_leaves_a_connection_that_is_not_used_again() -> None:
    connection, _ = connected()
    task = await asked(connection)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not connection.is_reusable
    connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")  # too late for anyone
