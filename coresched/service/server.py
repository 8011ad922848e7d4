"""The gRPC server: Router and Batches with standard health and reflection, from start to graceful stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from coresched.errors import InputError
from coresched.service.batches.limits import Limits
from coresched.service.batches.servicer import BATCHES, BatchesService
from coresched.service.calls import RouterCalls
from coresched.service.listen import TcpAddress, UnixAddress
from coresched.service.servicer import ROUTER, router_handler
from coresched.service.table import RoutingTable

LARGEST_MESSAGE_BYTES = 64 * 1024

_OPTIONS = [
    ("grpc.so_reuseport", 0),  # else a second server shares the port, and requests go to either
    ("grpc.max_receive_message_length", LARGEST_MESSAGE_BYTES),
    # A client that vanished without a word is noticed within 50 s, and its streams end.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.ping_timeout_ms", 20_000),  # else 60 s, where a ping is under way already
]


async def serve(
    table: RoutingTable,
    address: TcpAddress | UnixAddress,
    *,
    grace_s: float,
    announce: Callable[[str], None],
    limits: Limits | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then let open calls and streams go on for `grace_s` seconds.

    Calls of Batches that wait end at once then. `announce` is called with the address once it accepts
    connections. A second signal ends what is still open at once. Raises InputError if the address was taken
    meanwhile.
    """
    server = grpc.aio.server(options=_OPTIONS)
    batches = BatchesService(table, limits=limits)
    server.add_generic_rpc_handlers((router_handler(RouterCalls(table)), batches.handler()))
    status = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    reflection.enable_server_reflection(
        (ROUTER, BATCHES, health.SERVICE_NAME, reflection.SERVICE_NAME), server
    )
    for service in ("", ROUTER, BATCHES):
        await status.set(service, health_pb2.HealthCheckResponse.SERVING)
    try:
        port = server.add_insecure_port(str(address))
    except RuntimeError:
        raise InputError(f"--listen {address} cannot be used; choose another address") from None
    if isinstance(address, TcpAddress):
        address = TcpAddress(address.host, port)
    signals: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, number)
    expiry = asyncio.create_task(batches.run())
    await server.start()
    announce(str(address))
    await signals.get()
    await status.enter_graceful_shutdown()
    batches.stop_waiting()
    stopping = asyncio.create_task(server.stop(grace_s))
    again = asyncio.create_task(signals.get())
    await asyncio.wait((stopping, again), return_when=asyncio.FIRST_COMPLETED)
    if again.done():
        await server.stop(0)
    again.cancel()
    await stopping
    expiry.cancel()
