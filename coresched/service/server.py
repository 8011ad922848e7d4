"""The gRPC server: the services with standard health and reflection, from start to graceful stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from coresched.errors import InputError
from coresched.listen import TcpAddress, UnixAddress
from coresched.service.authentication import Authentication
from coresched.service.calls import RouterCalls
from coresched.service.prefix.calls import PrefixCalls
from coresched.service.prefix.queues import WaitingQueues
from coresched.service.prefix.servicer import PREFIX, prefix_handler
from coresched.service.servicer import ROUTER, router_handler
from coresched.service.table import RoutingTable
from coresched.service.tls import ServerTls
from coresched.service.tokens import Tokens

LARGEST_MESSAGE_BYTES = 64 * 1024
LARGEST_METADATA_BYTES = 8 * 1024
MOST_STREAMS = 1024
"""Most calls and streams that one connection may have open; its client makes further ones wait."""

_OPTIONS = [
    ("grpc.so_reuseport", 0),  # else a second server shares the port, and requests go to either
    ("grpc.max_receive_message_length", LARGEST_MESSAGE_BYTES),
    # Both, as between a soft and a hard limit gRPC refuses at random.
    ("grpc.max_metadata_size", LARGEST_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", LARGEST_METADATA_BYTES),
    ("grpc.max_concurrent_streams", MOST_STREAMS),
    # A client that vanished without a word is noticed within 50 s, and its streams end.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.ping_timeout_ms", 20_000),  # else 60 s, where a ping is under way already
]


@dataclass(frozen=True, slots=True)
class Security:
    """Who may connect and call, each read again at every SIGHUP; by default everyone who reaches the port."""

    tls: ServerTls | None = None
    read_tokens: Callable[[], Tokens] | None = None
    """Raises InputError for tokens that cannot be used."""


async def serve(
    table: RoutingTable,
    address: TcpAddress | UnixAddress,
    *,
    grace_s: float,
    announce: Callable[[str], None],
    security: Security = Security(),
    report: Callable[[str], None] = lambda line: None,
) -> None:
    """Serve until SIGTERM or SIGINT, then let open calls and streams go on for `grace_s` seconds.

    `announce` is called with the address once it accepts connections, `report` with what came of a SIGHUP. A
    second signal to stop ends what is still open at once. Raises InputError if the address was taken
    meanwhile or the tokens cannot be used.
    """
    tls, read_tokens = security.tls, security.read_tokens
    authentication = Authentication(read_tokens()) if read_tokens is not None else None
    server = grpc.aio.server(options=_OPTIONS, interceptors=[authentication] if authentication else None)
    server.add_generic_rpc_handlers(
        (router_handler(RouterCalls(table)), prefix_handler(PrefixCalls(WaitingQueues())))
    )
    status = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    reflection.enable_server_reflection(
        (ROUTER, PREFIX, health.SERVICE_NAME, reflection.SERVICE_NAME), server
    )
    for service in ("", ROUTER, PREFIX):
        await status.set(service, health_pb2.HealthCheckResponse.SERVING)
    try:
        if tls is None:
            port = server.add_insecure_port(str(address))
        else:
            port = server.add_secure_port(str(address), tls.credentials)
    except RuntimeError:
        raise InputError(f"--listen {address} cannot be used; choose another address") from None
    if isinstance(address, TcpAddress):
        address = TcpAddress(address.host, port)
    signals: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, number)

    def reload() -> None:
        try:
            fresh = read_tokens() if read_tokens is not None else None
            if tls is not None:
                tls.reload()
        except InputError as error:
            report(f"{error}; what was read before stays in use")
            return
        if authentication is not None and fresh is not None:
            authentication.tokens = fresh
        report("the files of --tokens and --tls-... were read again and are in use")

    if tls is not None or authentication is not None:
        loop.add_signal_handler(signal.SIGHUP, reload)
    await server.start()
    announce(str(address))
    await signals.get()
    await status.enter_graceful_shutdown()
    stopping = asyncio.create_task(server.stop(grace_s))
    again = asyncio.create_task(signals.get())
    await asyncio.wait((stopping, again), return_when=asyncio.FIRST_COMPLETED)
    if again.done():
        await server.stop(0)
    again.cancel()
    await stopping
