"""The HTTP server of the gateway, from the first health checks to the graceful stop."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from math import ceil

from aiohttp import web

from coresched.gateway.forward import Forwarder
from coresched.gateway.health import HealthChecks, health_session
from coresched.gateway.labels import LABEL_FIELDS
from coresched.gateway.members import Members
from coresched.gateway.pool import Connections
from coresched.gateway.proxy import Gateway
from coresched.gateway.refusal import RefusedError, answer
from coresched.gateway.traffic import Traffic
from coresched.http_server import Connection, listen, remove_socket
from coresched.listen import TcpAddress, UnixAddress
from coresched.recording.requests import RequestRecord
from coresched.stopping import stop_signals

_MOST_DESCRIPTORS = 65536


@dataclass(frozen=True, slots=True)
class Limits:
    """What the gateway takes and how long it waits, in bytes and seconds."""

    label_fields: Sequence[str] = LABEL_FIELDS
    max_body_bytes: int = 64 << 20
    connect_timeout_s: float = 5.0
    health_interval_s: float = 5.0
    health_timeout_s: float = 5.0


class RunningGateway:
    """A gateway that accepts connections at `address` until it is stopped."""

    def __init__(
        self,
        gateway: Gateway,
        traffic: Traffic,
        connections: web.Server,
        server: asyncio.AbstractServer,
        address: str,
    ) -> None:
        self.address = address
        self.traffic = traffic
        self._gateway = gateway
        self._connections = connections
        self._server = server

    async def stop(self, *, grace_s: float, at_once: asyncio.Event) -> None:
        """Accept nothing more; let open requests go on for `grace_s` seconds or until `at_once` is set."""
        self._server.close()
        remove_socket(self.address)
        busy = self._gateway.drain()
        for connection in self._connections.connections:
            if connection not in busy:
                connection.force_close()
        idle = asyncio.create_task(self._gateway.idle())
        hurried = asyncio.create_task(at_once.wait())
        await asyncio.wait((idle, hurried), timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        if not idle.done():
            for connection in self._connections.connections:
                if connection.transport is not None:
                    connection.transport.abort()
        idle.cancel()
        hurried.cancel()
        await self._connections.shutdown(1.0)  # answers that are being written


@asynccontextmanager
async def running(
    fleet: Members,
    limits: Limits,
    address: TcpAddress | UnixAddress,
    record: RequestRecord | None = None,
) -> AsyncIterator[RunningGateway]:
    """A gateway that accepts connections, after one check of all workers; in the end it ends at once.

    Raises InputError if the address cannot be used.
    """
    async with health_session() as session:
        checks = HealthChecks(
            fleet, session, interval_s=limits.health_interval_s, timeout_s=limits.health_timeout_s
        )
        await checks.first_round()
        to_workers = Connections(connect_timeout_s=limits.connect_timeout_s)
        traffic = Traffic()
        forwarder = Forwarder(
            fleet,
            to_workers,
            traffic,
            retry_after_s=max(1, ceil(limits.health_interval_s)),
            record=record,
        )
        gateway = Gateway(forwarder, label_fields=limits.label_fields, max_body_bytes=limits.max_body_bytes)
        connections = web.Server(gateway.handle, handler_cancellation=True)

        def refuse(status: int, said: str) -> web.Response:
            refused = RefusedError(status, "invalid_request" if status < 500 else "internal", said)
            traffic.refuse(refused)
            return answer(refused)

        server, listening = await listen(lambda: Connection(connections, "gateway", refuse), address)
        started = RunningGateway(gateway, traffic, connections, server, listening)
        checking = asyncio.create_task(checks.run())
        try:
            yield started
        finally:
            checking.cancel()
            await started.stop(grace_s=0, at_once=asyncio.Event())
            to_workers.close()


async def serve(
    fleet: Members,
    limits: Limits,
    address: TcpAddress | UnixAddress,
    *,
    grace_s: float,
    announce: Callable[[str], None],
    metrics: TcpAddress | UnixAddress | None = None,
    announce_metrics: Callable[[str], None] = lambda url: None,
    record: RequestRecord | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP, then let open requests go on for `grace_s` seconds.

    `announce` is called with the address once it accepts connections, `announce_metrics` with the URL of the
    metrics. A second signal ends what is still open at once. Raises InputError if an address was taken
    meanwhile.
    """
    _allow_many_connections()
    async with AsyncExitStack() as ends:
        gateway = await ends.enter_async_context(running(fleet, limits, address, record))
        url = None
        if metrics is not None:
            url = await ends.enter_async_context(_metrics_endpoint(fleet, gateway.traffic, metrics))
        first, second = stop_signals()
        announce(gateway.address)
        if url is not None:
            announce_metrics(url)
        await first.wait()
        await gateway.stop(grace_s=grace_s, at_once=second)


def _metrics_endpoint(
    fleet: Members, traffic: Traffic, address: TcpAddress | UnixAddress
) -> AbstractAsyncContextManager[str]:
    # Here, so that a gateway without metrics starts without what they need.
    from coresched.gateway.collector import GatewayCollector
    from coresched.metrics.endpoint import metrics_endpoint

    return metrics_endpoint(address, GatewayCollector(fleet, traffic).collect)


def _allow_many_connections() -> None:
    """Raise the soft limit of file descriptors, often 1024: an open request needs two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # it serves with fewer, too
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
