"""The gRPC server: the services with standard health and reflection, from start to graceful stop."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from coresched.errors import InputError
from coresched.listen import TcpAddress, UnixAddress
from coresched.logs import event
from coresched.service.authentication import Authentication
from coresched.service.batches.servicer import BATCHES
from coresched.service.prefix.calls import PrefixCalls
from coresched.service.prefix.servicer import PREFIX, prefix_handler
from coresched.service.servicer import ROUTER, router_handler
from coresched.service.state import ServiceState
from coresched.service.telemetry.events import log_batch_fact
from coresched.service.telemetry.spans import SampleSpans, configured_provider
from coresched.service.tls import ServerTls
from coresched.service.tokens import Tokens
from coresched.service.traceparent import ReadsTraces

_logger = logging.getLogger(__name__)

LARGEST_MESSAGE_BYTES = 64 * 1024
LARGEST_METADATA_BYTES = 8 * 1024
MOST_STREAMS = 1024
"""Most calls and streams that one connection may have open; its client makes further ones wait."""

OPTIONS = [
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
    state: ServiceState,
    address: TcpAddress | UnixAddress,
    *,
    grace_s: float,
    announce: Callable[[str], None],
    security: Security = Security(),
    metrics: TcpAddress | UnixAddress | None = None,
    announce_metrics: Callable[[str], None] = lambda url: None,
    signals: bool = True,
) -> bool:
    """Serve until SIGTERM or SIGINT, then let open calls and streams go on for `grace_s` seconds.

    Calls of Batches that wait end at once then. `announce` is called with the address once it accepts
    connections, `announce_metrics` with the URL of the metrics. What happens is logged. A second signal to
    stop ends what is still open at once. Without `signals` those of the process are left alone, as they must
    be outside of its main thread, and it serves until it is cancelled. A journal that cannot be written any
    more stops the service; then, and only then, this returns False. Raises InputError if an address was taken
    meanwhile, or the tokens or the journal cannot be used.
    """
    stops: asyncio.Queue[int | None] = asyncio.Queue()
    failed = False

    def stop(why: str) -> None:
        nonlocal failed
        failed = True
        line = f"--journal {why}; make room or give another --journal FILE, and start again"
        event(_logger, logging.ERROR, "journal_failed", line)
        stops.put_nowait(None)

    state.batches.parts.recorder.listeners.append(log_batch_fact)
    async with AsyncExitStack() as ends:
        if state.journal is not None:
            state.journal.start(stop)
            ends.push_async_callback(state.journal.close)
        if metrics is not None:
            url = await ends.enter_async_context(_metrics_endpoint(state, metrics))

            def announce_both(listening: str) -> None:
                announce(listening)
                announce_metrics(url)

        await _serve_until(
            stops,
            state,
            address,
            grace_s,
            announce if metrics is None else announce_both,
            security,
            signals=signals,
        )
    return not failed


def _metrics_endpoint(
    state: ServiceState, address: TcpAddress | UnixAddress
) -> AbstractAsyncContextManager[str]:
    # Here, so that a service without metrics starts without what they need.
    from coresched.metrics.endpoint import metrics_endpoint
    from coresched.service.telemetry.collector import ServiceCollector

    return metrics_endpoint(address, ServiceCollector(state).collect)


async def _serve_until(
    stops: asyncio.Queue[int | None],
    state: ServiceState,
    address: TcpAddress | UnixAddress,
    grace_s: float,
    announce: Callable[[str], None],
    security: Security,
    *,
    signals: bool,
) -> None:
    tls, read_tokens = security.tls, security.read_tokens
    authentication = Authentication(read_tokens()) if read_tokens is not None else None
    interceptors: list[grpc.aio.ServerInterceptor] = [authentication] if authentication else []
    batches = state.batches
    provider = configured_provider()
    if provider is not None:
        batches.parts.recorder.listeners.insert(0, SampleSpans(provider, batches.parts.waits).on_fact)
        interceptors.append(ReadsTraces())
    server = grpc.aio.server(options=OPTIONS, interceptors=interceptors)
    server.add_generic_rpc_handlers(
        (router_handler(state.router), batches.handler(), prefix_handler(PrefixCalls(state.queues)))
    )
    status = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    reflection.enable_server_reflection(
        (ROUTER, BATCHES, PREFIX, health.SERVICE_NAME, reflection.SERVICE_NAME), server
    )
    for service in ("", ROUTER, BATCHES, PREFIX):
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
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT) if signals else ():
        loop.add_signal_handler(number, stops.put_nowait, number)

    def reload() -> None:
        if tls is None and authentication is None:
            line = "SIGHUP reads the files of --tokens and --tls-... again; none was given, nothing changed"
            event(_logger, logging.INFO, "reloaded", line)
            return
        try:
            fresh = read_tokens() if read_tokens is not None else None
            if tls is not None:
                tls.reload()
        except InputError as error:
            line = f"{error}; what was read before stays in use"
            event(_logger, logging.WARNING, "reload_refused", line)
            return
        if authentication is not None and fresh is not None:
            authentication.tokens = fresh
        line = "the files of --tokens and --tls-... were read again and are in use"
        event(_logger, logging.INFO, "reloaded", line)

    if signals:
        loop.add_signal_handler(signal.SIGHUP, reload)
    expiry = asyncio.create_task(batches.run())
    await server.start()
    try:
        announce(str(address))
        await stops.get()
        await status.enter_graceful_shutdown()
        batches.stop_waiting()
        stopping = asyncio.create_task(server.stop(grace_s))
        again = asyncio.create_task(stops.get())
        await asyncio.wait((stopping, again), return_when=asyncio.FIRST_COMPLETED)
        if again.done():
            await server.stop(0)
        again.cancel()
        await stopping
    finally:
        await server.stop(0)  # what is left when `announce` raised
        expiry.cancel()
