"""The gRPC server of the endpoint picker, from the first health checks to the graceful stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from time import monotonic

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from coresched.errors import InputError
from coresched.gateway.fleet import Fleet
from coresched.gateway.health import HealthChecks, health_session
from coresched.gateway.workers import Worker
from coresched.http_server import remove_socket
from coresched.listen import TcpAddress, UnixAddress
from coresched.logs import event
from coresched.stopping import stop_signals
from coresched_envoy.flights import Flights
from coresched_envoy.members import Members, WorkersFile
from coresched_envoy.picker import Picker
from coresched_envoy.processing import EXTERNAL_PROCESSOR, Services

_logger = logging.getLogger("coresched.epp")

LIVENESS, READINESS = "liveness", "readiness"
"""Services of the health check that Kubernetes probes; the name of Envoy's says the same as readiness."""

SWEEP_EVERY_S = 0.5

_OPTIONS = [
    ("grpc.so_reuseport", 0),  # else a second server shares the port, and requests go to either
    # An Envoy that vanished without a word is noticed within 50 s, and its streams end.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.ping_timeout_ms", 20_000),
]


@dataclass(frozen=True, slots=True)
class Settings:
    """What the picker takes and how long it waits, in seconds."""

    label_headers: tuple[str, ...] = ()
    max_in_flight: int | None = None
    log_wait_s: float = 5.0
    longest_s: float = 3600.0
    health_interval_s: float = 5.0
    health_timeout_s: float = 5.0


class RunningPicker:
    """A picker that answers at `address` until it is stopped."""

    def __init__(
        self, server: grpc.aio.Server, statuses: health.aio.HealthServicer, services: Services, picker: Picker
    ) -> None:
        self.address = ""
        self.services = services
        self.picker = picker
        self._server = server
        self._statuses = statuses
        self._draining = False
        self._changed = asyncio.Event()

    async def keep_statuses(self) -> None:
        """Tell who asks for this server's health whether there is a worker to go to, until cancelled."""
        serving, not_serving = (
            health_pb2.HealthCheckResponse.SERVING,
            health_pb2.HealthCheckResponse.NOT_SERVING,
        )
        await self._statuses.set(LIVENESS, serving)
        while True:
            ready = not self._draining and self.picker.fleet.healthy() > 0
            for name in ("", READINESS, EXTERNAL_PROCESSOR):
                await self._statuses.set(name, serving if ready else not_serving)
            await self._changed.wait()
            self._changed.clear()

    def worker_changed(self) -> None:
        """A worker went out or came back, was added or removed."""
        self._changed.set()

    async def sweep(self) -> None:
        """End flights that are due, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            self.picker.flights.sweep(monotonic())

    async def drain(self, *, grace_s: float, at_once: asyncio.Event) -> None:
        """Say that it does not serve, but answer on, so that Envoy finds another picker in time.

        Returns when no request is in flight, after `grace_s` seconds, or when `at_once` is set.
        """
        self._draining = True
        self._changed.set()
        end = monotonic() + grace_s
        while len(self.picker.flights) > 0 and not at_once.is_set() and (left := end - monotonic()) > 0:
            try:
                await asyncio.wait_for(at_once.wait(), min(left, SWEEP_EVERY_S))
            except asyncio.TimeoutError:
                continue

    async def stop(self) -> None:
        """End all streams."""
        await self._server.stop(0)
        remove_socket(self.address)


@asynccontextmanager
async def running(
    fleet: Fleet,
    settings: Settings,
    address: TcpAddress | UnixAddress,
    given: Mapping[str, float],
    file: WorkersFile | None = None,
) -> AsyncIterator[RunningPicker]:
    """A picker that answers, after one check of all workers; in the end it ends at once.

    `given`: workers that stay whatever the file says. Raises InputError if the address cannot be used.
    """
    flights = Flights(
        release=fleet.release,
        wait_s=settings.log_wait_s,
        longest_s=settings.longest_s,
        silent=_silent,
        heard=_heard,
    )
    picker = Picker(
        fleet,
        flights,
        label_headers=settings.label_headers,
        max_in_flight=settings.max_in_flight,
        retry_after_s=max(1, round(settings.health_interval_s)),
    )
    services = Services(picker, monotonic)
    async with health_session() as session:
        checks = HealthChecks(
            fleet, session, interval_s=settings.health_interval_s, timeout_s=settings.health_timeout_s
        )
        await checks.first_round()
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers(services.handlers())
        statuses = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(statuses, server)
        try:
            port = server.add_insecure_port(str(address))
        except RuntimeError:
            raise InputError(f"--listen {address} cannot be used; choose another address") from None
        started = RunningPicker(server, statuses, services, picker)
        started.address = str(TcpAddress(address.host, port) if isinstance(address, TcpAddress) else address)
        fleet.on_change = started.worker_changed
        tasks = [
            asyncio.create_task(work)
            for work in (
                started.keep_statuses(),
                started.sweep(),
                Members(fleet, checks, given, file).run(),
            )
        ]
        await server.start()
        try:
            yield started
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await started.stop()


async def serve(
    fleet: Fleet,
    settings: Settings,
    address: TcpAddress | UnixAddress,
    given: Mapping[str, float],
    *,
    file: WorkersFile | None = None,
    grace_s: float,
    announce: Callable[[str], None],
    metrics: TcpAddress | UnixAddress | None = None,
    announce_metrics: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP, then drain for at most `grace_s` seconds.

    `announce` is called with the address once it answers, `announce_metrics` with the URL of the metrics. A
    second signal ends it at once. Raises InputError if an address was taken meanwhile.
    """
    async with AsyncExitStack() as ends:
        picker = await ends.enter_async_context(running(fleet, settings, address, given, file))
        url = None
        if metrics is not None:
            url = await ends.enter_async_context(_metrics_endpoint(picker, metrics))
        first, second = stop_signals()
        announce(picker.address)
        if url is not None:
            announce_metrics(url)
        await first.wait()
        await picker.drain(grace_s=grace_s, at_once=second)


def _metrics_endpoint(
    picker: RunningPicker, address: TcpAddress | UnixAddress
) -> AbstractAsyncContextManager[str]:
    # Here, so that a picker without metrics starts without what they need.
    from coresched.metrics.endpoint import metrics_endpoint
    from coresched_envoy.collector import PickerCollector

    return metrics_endpoint(address, PickerCollector(picker.picker, picker.services).collect)


def worker_state(worker: Worker, line: str) -> None:
    """Tells the operator that a worker went out or came back; for the fleet."""
    level, name = (logging.INFO, "worker_back") if worker.healthy else (logging.WARNING, "worker_out")
    event(_logger, level, name, line, worker=worker.name)


def _silent(connection: str) -> None:
    line = (
        f"no line of Envoy's access log has come for requests of {connection}: their counts now end with "
        "the response's headers, too early for streamed answers; configure its gRPC access log to this "
        "address, and receiving_namespaces with coresched"
    )
    event(_logger, logging.WARNING, "access_log_missing", line, connection=connection)


def _heard(connection: str) -> None:
    line = f"lines of Envoy's access log come for requests from {connection}: counts are exact again"
    event(_logger, logging.INFO, "access_log_found", line, connection=connection)
