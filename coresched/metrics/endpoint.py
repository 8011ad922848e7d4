"""Where Prometheus scrapes a server: GET /metrics on an address of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

from coresched.errors import InputError
from coresched.http_server import remove_socket
from coresched.listen import TcpAddress, UnixAddress


class _Collected(CollectorRegistry):
    """What was collected already, as the encoders want it."""

    def __init__(self, families: list[Metric]) -> None:
        super().__init__()
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


@asynccontextmanager
async def metrics_endpoint(
    address: TcpAddress | UnixAddress, collect: Callable[[], Iterable[Metric]]
) -> AsyncIterator[str]:
    """Serve what `collect` gives; the URL, or the address of the socket.

    `collect` is called on the event loop, where nothing changes meanwhile; the text is made in a thread.
    Raises InputError if the address was taken meanwhile.
    """

    async def scraped(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        text = await asyncio.to_thread(encode, _Collected(list(collect())))
        return web.Response(body=text, headers={"Content-Type": content_type})

    application = web.Application()
    application.router.add_get("/metrics", scraped)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        yield await _listen(runner, address)
    finally:
        await runner.cleanup()
        remove_socket(str(address))


async def _listen(runner: web.AppRunner, address: TcpAddress | UnixAddress) -> str:
    site: web.BaseSite
    if isinstance(address, UnixAddress):
        site = web.UnixSite(runner, address.path)
    else:
        site = web.TCPSite(runner, address.host, address.port)
    try:
        await site.start()
    except OSError as error:
        raise InputError(f"--metrics {address} cannot be used: {error.strerror}") from None
    if isinstance(address, UnixAddress):
        return str(address)
    return f"http://{TcpAddress(address.host, runner.addresses[0][1])}/metrics"
