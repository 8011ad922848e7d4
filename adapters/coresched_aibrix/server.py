"""The HTTP server of the endpoint, from start to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web

from coresched.http_server import Connection, listen, remove_socket
from coresched.listen import TcpAddress, UnixAddress
from coresched_aibrix.endpoint import Endpoint

_LAST_ANSWERS_S = 1.0
"""AIBrix waits 10 ms unless it was told otherwise, so nobody waits for an answer after this."""


@asynccontextmanager
async def running(endpoint: Endpoint, address: TcpAddress | UnixAddress) -> AsyncIterator[str]:
    """An endpoint that accepts connections; where it listens. Raises InputError if it cannot there."""
    connections = web.Server(endpoint.handle)
    server, listening = await listen(lambda: Connection(connections, "endpoint", endpoint.refuse), address)
    try:
        yield listening
    finally:
        server.close()
        remove_socket(listening)
        await connections.shutdown(_LAST_ANSWERS_S)


async def serve(
    endpoint: Endpoint,
    address: TcpAddress | UnixAddress,
    *,
    announce: Callable[[str], None],
    metrics: TcpAddress | UnixAddress | None = None,
    announce_metrics: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP; requests under way are answered.

    `announce` is called with the address once it accepts connections, `announce_metrics` with the URL of the
    metrics. Raises InputError if an address was taken meanwhile.
    """
    async with AsyncExitStack() as ends:
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        listening = await ends.enter_async_context(running(endpoint, address))
        url = None
        if metrics is not None:
            # Here, so that an endpoint without metrics starts without what they need.
            from coresched.metrics.endpoint import metrics_endpoint
            from coresched_aibrix.collector import EndpointCollector

            url = await ends.enter_async_context(
                metrics_endpoint(metrics, EndpointCollector(endpoint).collect)
            )
        announce(listening)
        if url is not None:
            announce_metrics(url)
        await stopped.wait()
