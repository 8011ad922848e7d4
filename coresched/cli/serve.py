"""`coresched serve`: router and batches as a gRPC service for many harness processes."""

import argparse
import asyncio
import logging
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from coresched.cli.parser import CommandParser, add_command, count, weighted
from coresched.cli.server_options import (
    add_grace,
    add_listen,
    add_logging,
    add_metrics,
    add_routing,
    check_routing,
)
from coresched.errors import InputError
from coresched.logs import event, logging_to_stderr

if TYPE_CHECKING:
    from coresched.service.tls import TlsFiles

_logger = logging.getLogger(__name__)


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "serve",
        summary="route and schedule for many harness processes over gRPC",
        description="Serve load-bounded consistent hashing and shared batches over gRPC (coresched.v1:\n"
        "Router and Batches, with health and reflection). Prints the address it listens on. Stops on\n"
        "SIGTERM or Ctrl-C: open calls and streams may go on for the grace period, but calls that\n"
        "wait for a slot end; a second signal ends all of them at once.",
        example="coresched serve --listen 127.0.0.1:50071 --worker w0 --worker w1=2",
    )
    add_listen(
        parser,
        default="127.0.0.1:50071",
        warning="without --tokens and --tls-client-ca whoever can connect may do everything",
    )
    parser.add_argument(
        "--worker",
        action="append",
        default=[],
        type=weighted,
        dest="workers",
        metavar="NAME[=WEIGHT]",
        help="a worker routable from the start, and its capacity relative to the others (default 1); "
        "repeat for each worker",
    )
    parser.add_argument(
        "--journal",
        default="coresched-journal.sqlite3",
        metavar="FILE|none",
        help="where to keep what happens, so that a service started again with it goes on; made if there is "
        "none; 'none' keeps nothing (default %(default)s, in the working directory)",
    )
    add_metrics(parser, shows="names of tenants, batches and workers")
    add_routing(parser)
    add_grace(parser, what="open calls and streams")
    parser.add_argument(
        "--tokens",
        type=Path,
        metavar="FILE",
        help="JSON list of the tokens that calls must have, each with its tenant; read again on SIGHUP",
    )
    parser.add_argument(
        "--tls-certificate",
        type=Path,
        metavar="FILE",
        help="serve TLS with this certificate chain (PEM); read again on SIGHUP",
    )
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="private key of the certificate (PEM)")
    parser.add_argument(
        "--tls-client-ca",
        type=Path,
        metavar="FILE",
        help="accept only clients with a certificate of this CA (PEM)",
    )
    parser.add_argument(
        "--max-open-batches",
        type=count,
        default=100,
        metavar="N",
        help="batches that may be open at once (default %(default)s)",
    )
    parser.add_argument(
        "--max-waiters",
        type=count,
        default=100_000,
        metavar="N",
        help="calls that may wait at once, for admission, for an environment slot or for progress "
        "(default %(default)s)",
    )
    add_logging(parser, debug="names of samples")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    with logging_to_stderr("coresched serve", args.log, args.log_level):
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    # Here, so that the other commands start without gRPC.
    from coresched.listen import TcpAddress, UnixAddress, listen_address, two_addresses
    from coresched.service.batches.limits import Limits
    from coresched.service.journal import Journal
    from coresched.service.server import Security, serve
    from coresched.service.state import ServiceState
    from coresched.service.table import RoutingTable
    from coresched.service.tls import ServerTls
    from coresched.service.tokens import read_tokens

    check_routing(args)
    workers: dict[str, float] = {}
    for name, weight in args.workers:
        if name in workers:
            raise InputError(f"--worker must name each worker once, got {name!r} again")
        workers[name] = weight
    try:
        table = RoutingTable(
            workers,
            router=args.router,
            load_bound=args.load_bound,
            virtual_nodes=args.virtual_nodes,
            slack=args.slack,
        )
    except ValueError as error:
        raise InputError(f"--worker or --virtual-nodes: {error}") from None
    if args.tokens is not None and os.environ.get("GRPC_TRACE"):
        raise InputError("--tokens needs GRPC_TRACE unset: with it gRPC prints the metadata of each call")
    files = _tls_files(args)
    tls = ServerTls(files) if files is not None else None
    address = listen_address(args.listen)
    if isinstance(address, UnixAddress) and tls is not None:
        raise InputError(f"--tls-certificate is for TCP, got --listen {address}; leave TLS out on a socket")
    if isinstance(address, TcpAddress) and not address.loopback:
        if args.tokens is not None and tls is None:
            raise InputError(
                f"--tokens would be sent in the clear to --listen {address}, which is not loopback; "
                "add --tls-certificate and --tls-key"
            )
        if args.tokens is None and args.tls_client_ca is None:
            _warn(
                "open_to_all",
                f"{address.host} is not loopback, and there is no authentication: whoever reaches it may "
                "route, remove workers and close batches; add --tokens or --tls-client-ca",
            )
    metrics = listen_address(args.metrics, "--metrics") if args.metrics is not None else None
    two_addresses(address, metrics)
    if isinstance(metrics, TcpAddress) and not metrics.loopback:
        _warn(
            "metrics_open_to_all",
            f"--metrics {metrics} is not loopback: whoever reaches it may read names of tenants, batches "
            "and workers",
        )
    tokens = partial(read_tokens, args.tokens) if args.tokens is not None else None

    def announce(listening: str) -> None:
        print(f"coresched serve: listening on {listening}", flush=True)

    state = ServiceState(
        table,
        journal=None if args.journal == "none" else Journal(args.journal),
        limits=Limits(open_batches=args.max_open_batches, waiters=args.max_waiters),
        report=lambda line: event(_logger, logging.INFO, "recovery", line),
    )
    serving = serve(
        state,
        address,
        grace_s=args.grace_s,
        announce=announce,
        security=Security(tls, tokens),
        metrics=metrics,
        announce_metrics=lambda url: print(f"coresched serve: metrics at {url}", flush=True),
    )
    return 0 if asyncio.run(serving) else 1


def _warn(name: str, line: str) -> None:
    event(_logger, logging.WARNING, name, line)


def _tls_files(args: argparse.Namespace) -> "TlsFiles | None":
    from coresched.service.tls import TlsFiles

    certificate, key, client_ca = args.tls_certificate, args.tls_key, args.tls_client_ca
    if certificate is None and key is None and client_ca is None:
        return None
    if certificate is None:
        given = "--tls-key" if key is not None else "--tls-client-ca"
        raise InputError(f"{given} must be given with --tls-certificate; add it")
    if key is None:
        raise InputError("--tls-certificate must be given with --tls-key; add it")
    return TlsFiles(certificate, key, client_ca)
