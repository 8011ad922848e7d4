"""`coresched gateway`: an OpenAI-compatible HTTP front that routes each request by its trajectory label."""

import argparse
import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

from coresched.cli.connection import add_credential_options, connection_of, flags_named
from coresched.cli.parser import CommandParser, add_command, number, weighted
from coresched.cli.server_options import (
    add_grace,
    add_health,
    add_listen,
    add_logging,
    add_metrics,
    add_routing,
    check_routing,
    refuse_routing,
)
from coresched.errors import InputError
from coresched.logs import event, logging_to_stderr

if TYPE_CHECKING:
    from coresched.gateway.members import Members
    from coresched.gateway.workers import Worker

_logger = logging.getLogger(__name__)

DEFAULT_SERVICE_WAIT_S = 5.0


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "gateway",
        summary="an OpenAI-compatible HTTP front of several engine workers",
        description="Pass OpenAI-compatible HTTP requests on to engine workers, each to the worker that has\n"
        "its trajectory's cache, while that worker's load is within a bound (LBCH). The label is\n"
        "the header x-smg-routing-key, else x-session-id, else a body field, else how the body\n"
        "begins.\n"
        "Prints the address it listens on. Stops on SIGTERM or Ctrl-C: open requests may go on for\n"
        "the grace period; a second signal ends them at once.",
        example="coresched gateway --listen 127.0.0.1:8080 \\\n"
        "    --worker http://10.0.0.1:30000 --worker http://10.0.0.2:30000=2",
    )
    add_listen(
        parser,
        default="127.0.0.1:8080",
        warning="whoever can connect may use the workers, so keep to loopback or a unix socket unless the "
        "network is trusted",
    )
    parser.add_argument(
        "--worker",
        action="append",
        default=[],
        type=weighted,
        dest="workers",
        metavar="URL[=WEIGHT]",
        help="base URL of an engine worker, and its capacity relative to the others (default 1); repeat for "
        "each worker",
    )
    parser.add_argument(
        "--service",
        metavar="HOST:PORT|unix:PATH",
        help="let this `coresched serve` choose among its own workers, which are named by their base URLs; "
        "several gateways then share one count",
    )
    parser.add_argument(
        "--service-wait-s",
        type=number(above=0),
        metavar="S",
        help="seconds that a request waits for a service that does not answer, before it is answered 503 "
        f"(default {DEFAULT_SERVICE_WAIT_S:g})",
    )
    add_credential_options(parser, "token of the service")
    add_metrics(parser, shows="the URLs of workers")
    add_routing(parser)
    parser.add_argument(
        "--label-field",
        action="append",
        dest="label_fields",
        metavar="NAME",
        help="top-level field of the JSON body that gives the label if no header does; repeat for "
        "more, tried in this order (default routing_key, session_id, prompt_cache_key)",
    )
    parser.add_argument(
        "--max-body-mib",
        type=number(above=0),
        default=64.0,
        metavar="MIB",
        help="largest request body (default %(default)g)",
    )
    parser.add_argument(
        "--connect-timeout-s",
        type=number(above=0),
        default=5.0,
        metavar="S",
        help="seconds to connect to a worker; there is no limit to its answer (default %(default)g)",
    )
    add_health(parser)
    parser.add_argument(
        "--record",
        metavar="FOLDER",
        help="write down each request with its usage, for `coresched trace import` and `coresched report`; "
        "harnesses may record into the same folder",
    )
    add_grace(parser, what="open requests")
    add_logging(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    with logging_to_stderr("coresched gateway", args.log, args.log_level):
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    # Here, so that the other commands start without the HTTP stack.
    from coresched.gateway.labels import LABEL_FIELDS
    from coresched.gateway.server import Limits, serve
    from coresched.listen import TcpAddress, listen_address, two_addresses
    from coresched.recording.requests import RequestRecord
    from coresched.recording.writer import RecordingError

    def announce(listening: str) -> None:
        print(f"coresched gateway: listening on {listening}", flush=True)

    fleet = _fleet(args)
    limits = Limits(
        label_fields=args.label_fields or LABEL_FIELDS,
        max_body_bytes=int(args.max_body_mib * (1 << 20)),
        connect_timeout_s=args.connect_timeout_s,
        health_interval_s=args.health_interval_s,
        health_timeout_s=args.health_timeout_s,
    )
    address = listen_address(args.listen)
    if isinstance(address, TcpAddress) and not address.loopback:
        event(
            _logger,
            logging.WARNING,
            "open_to_all",
            f"{address.host} is not loopback, and there is no authentication: whoever reaches it may use the "
            "workers",
        )
    metrics = listen_address(args.metrics, "--metrics") if args.metrics is not None else None
    two_addresses(address, metrics)
    if isinstance(metrics, TcpAddress) and not metrics.loopback:
        event(
            _logger,
            logging.WARNING,
            "metrics_open_to_all",
            f"--metrics {metrics} is not loopback: whoever reaches it may read the URLs of workers",
        )
    record = None if args.record is None else RequestRecord(args.record, "gateway", field="--record")

    async def serving() -> None:
        async with fleet() as members:
            await serve(
                members,
                limits,
                address,
                grace_s=args.grace_s,
                announce=announce,
                metrics=metrics,
                announce_metrics=lambda url: print(f"coresched gateway: metrics at {url}", flush=True),
                record=record,
            )

    try:
        import uvloop
    except ImportError:  # a platform without it
        asyncio.run(serving())
    else:
        uvloop.run(serving())
    if record is not None:
        try:
            record.close()
        except RecordingError as error:
            event(_logger, logging.ERROR, "recording_incomplete", str(error))
            return 1
    return 0


def _fleet(args: argparse.Namespace) -> "Callable[[], AbstractAsyncContextManager[Members]]":
    """What makes the fleet, checked; to be called on the event loop."""
    if args.service is not None:
        return _service_fleet(args)
    from coresched.gateway.fleet import Fleet
    from coresched.gateway.workers import checked_workers, worker_at

    for name in ("service-wait-s", "token", "ca", "certificate", "key"):
        if getattr(args, name.replace("-", "_")) is not None:
            raise InputError(f"--{name} is for a service; add --service HOST:PORT, or leave it out")
    if not args.workers:
        raise InputError("--worker or --service must be given, such as --worker http://127.0.0.1:30000")
    check_routing(args)
    workers = checked_workers([worker_at(url, weight) for url, weight in args.workers])
    try:
        fleet = Fleet(
            workers,
            router=args.router,
            load_bound=args.load_bound,
            virtual_nodes=args.virtual_nodes,
            slack=args.slack,
            failures_to_out=args.health_failures,
            notify=_notify,
        )
    except ValueError as error:
        raise InputError(f"--worker or --virtual-nodes: {error}") from None
    return lambda: nullcontext(fleet)


def _service_fleet(args: argparse.Namespace) -> "Callable[[], AbstractAsyncContextManager[Members]]":
    from coresched.client.errors import ServiceError
    from coresched.client.remote.options import Connection
    from coresched.gateway.service_fleet import service_fleet

    if args.workers:
        raise InputError(
            f"--worker {args.workers[0][0]} must be left out with --service, whose workers are its own; "
            "start `coresched serve` with it"
        )
    refuse_routing(args, "--service, which has its own")
    connection = Connection(target=args.service, **connection_of(args))
    with flags_named("--service"):
        connection.check()

    @asynccontextmanager
    async def connected() -> "AsyncIterator[Members]":
        making = service_fleet(
            connection,
            wait_s=args.service_wait_s or DEFAULT_SERVICE_WAIT_S,
            failures_to_out=args.health_failures,
            notify=_notify,
            tell=_tell,
        )
        async with AsyncExitStack() as stack:
            try:
                fleet = await stack.enter_async_context(making)
            except ServiceError as error:
                token = "; give its token by CORESCHED_TOKEN or --token"
                instead = token if error.code == "UNAUTHENTICATED" else ""
                raise InputError(f"--service {args.service}: {error}{instead}") from None
            yield fleet

    return connected


def _tell(well: bool, line: str) -> None:
    event(_logger, logging.INFO if well else logging.WARNING, "service" if well else "service_fault", line)


def _notify(worker: "Worker", line: str) -> None:
    level, name = (logging.INFO, "worker_back") if worker.healthy else (logging.WARNING, "worker_out")
    event(_logger, level, name, line, worker=worker.name)
