"""A gateway in this process, and workers for it whose every step the test decides."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from coresched.gateway.fleet import Fleet
from coresched.gateway.server import Limits, RunningGateway, running
from coresched.gateway.workers import Worker
from coresched.listen import TcpAddress
from coresched.recording.requests import RequestRecord

CHAT = "/v1/chat/completions"
NEVER_S = 3600.0


@dataclass
class Seen:
    """One request as a worker got it."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]


@dataclass
class FakeWorker:
    """Answers 200 to everything, once `gate` is set, unless `respond` is given."""

    respond: Callable[[web.BaseRequest, bytes], Awaitable[web.StreamResponse]] | None = None
    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    arrived: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a request was cancelled, because its client, the gateway, is gone."""
    health: int = 200
    port: int = 0
    _connections: web.Server | None = None
    _server: Any = None

    async def start(self) -> None:
        self._connections = web.Server(self._handle, handler_cancellation=True, auto_decompress=False)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connections, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    async def kill(self) -> None:
        """As SIGKILL does: the port is closed and every connection reset."""
        assert self._connections is not None
        self._server.close()
        for connection in self._connections.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.sleep(0)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/health":
            return web.Response(status=self.health)
        body = await request.content.read()
        headers = [(name.decode(), value.decode()) for name, value in request.raw_headers]
        self.seen.append(Seen(request.method, request.raw_path, headers, body))
        self.arrived.release()
        try:
            await self.gate.wait()
            if self.respond is not None:
                return await self.respond(request, body)
        except asyncio.CancelledError:
            self.gone.set()
            raise
        return web.json_response({"port": self.port})


@dataclass
class Running:
    url: str
    fleet: Fleet
    workers: list[FakeWorker]
    changes: asyncio.Queue[str]
    gateway: RunningGateway

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def worker(self, name: str) -> FakeWorker:
        return next(worker for worker in self.workers if worker.url == name)


@asynccontextmanager
async def gateway(
    *workers: FakeWorker,
    load_bound: float = 1.25,
    failures_to_out: int = 3,
    record: RequestRecord | None = None,
    **limits: Any,
) -> AsyncIterator[Running]:
    """A gateway before these workers, which are started first. Health checks only if an interval is given."""
    for worker in workers:
        worker.gate.set()
        await worker.start()
    changes: asyncio.Queue[str] = asyncio.Queue()
    fleet = Fleet(
        [Worker(worker.url) for worker in workers],
        load_bound=load_bound,
        failures_to_out=failures_to_out,
        notify=lambda worker, line: changes.put_nowait(line),
    )
    settings = Limits(**{"health_interval_s": NEVER_S, **limits})
    async with running(fleet, settings, TcpAddress("127.0.0.1", 0), record) as started:
        yield Running(f"http://{started.address}", fleet, list(workers), changes, started)
    assert sum(fleet.in_flight().values()) == 0
    for worker in workers:
        await worker.kill()


def client(**options: Any) -> aiohttp.ClientSession:
    """A client that fails instead of waiting for ever."""
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20), **options)


async def exchanged(port: int, request: bytes) -> bytes:
    """What the gateway answers to these bytes: one response with a Content-Length."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        (length,) = re.findall(rb"\r\ncontent-length: (\d+)\r\n", head.lower())
        return head + await asyncio.wait_for(reader.readexactly(int(length)), 20)
    finally:
        writer.close()
