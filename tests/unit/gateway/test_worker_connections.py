"""The pool: which connection a request gets, over TCP and TLS."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from certificates import Authority

from coresched.gateway import pool
from coresched.gateway.pool import Connections, NoConnectionError
from coresched.gateway.workers import Worker

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@asynccontextmanager
async def worker(tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator[Worker]:
    """Answers ANSWER to whatever ends with an empty line."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
    try:
        yield Worker(f"http{'s' if tls else ''}://{host}:{server.sockets[0].getsockname()[1]}")
    finally:
        server.close()


@asynccontextmanager
async def connections(*workers: Worker, timeout_s: float = 20) -> AsyncIterator[Connections]:
    opened = Connections(connect_timeout_s=timeout_s)
    try:
        yield opened
    finally:
        opened.close()


async def body_of(opened: Connections, worker: Worker) -> bytes | None:
    connection = await opened.take(worker)
    try:
        await connection.ask(b"GET / HTTP/1.1\r\n\r\n", b"")
        return connection.body
    finally:
        opened.give_back(worker, connection)


async def test_the_connection_used_last_comes_first_and_a_used_one_is_no_one_elses() -> None:
    async with worker() as there, connections(there) as opened:
        first, second = await opened.take(there), await opened.take(there)
        assert first is not second
        opened.give_back(there, first)
        opened.give_back(there, second)
        assert [await opened.take(there) for _ in range(2)] == [second, first]
        opened.give_back(there, first)
        opened.give_back(there, second)


async def test_each_worker_has_its_own() -> None:
    async with worker() as one, worker() as other, connections(one, other) as opened:
        connection = await opened.take(one)
        opened.give_back(one, connection)
        assert await body_of(opened, other) == b"ok"
        assert await opened.take(one) is connection
        opened.give_back(one, connection)


async def test_a_connection_idle_for_long_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_IDLE_S", 0.0)
    async with worker() as there, connections(there) as opened:
        connection = await opened.take(there)
        closed = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(connection, "connection_lost", closed.set_result)
        opened.give_back(there, connection)
        await asyncio.wait_for(closed, 20)
        assert not connection.is_reusable


async def test_nobody_there_is_no_connection() -> None:
    async with worker() as there:
        pass
    async with connections(there) as opened:
        with pytest.raises(NoConnectionError, match=r"refused|Connect call failed"):
            await opened.take(there)


async def test_a_connection_that_takes_too_long_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*args: object, **options: object) -> None:
        await asyncio.Event().wait()

    async with worker() as there, connections(there, timeout_s=0.01) as opened:
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
        with pytest.raises(NoConnectionError, match=r"no connection within 0\.01 s"):
            await opened.take(there)


@pytest.mark.parametrize("trusted", [True, False])
async def test_tls_checks_the_certificate(
    trusted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = Authority.create(tmp_path).issue("server")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    async with worker(tls, "localhost") as there, connections(there) as opened:
        if trusted:
            assert await body_of(opened, there) == b"ok"
        else:
            with pytest.raises(NoConnectionError, match="certificate verify failed"):
                await opened.take(there)
