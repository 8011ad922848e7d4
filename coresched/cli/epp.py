"""`coresched epp`: an endpoint picker for Envoy, over external processing."""

import argparse
import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from coresched.cli.parser import CommandParser, add_command, count, number, weighted
from coresched.cli.server_options import (
    add_grace,
    add_health,
    add_listen,
    add_logging,
    add_metrics,
    add_routing,
    check_routing,
)
from coresched.errors import InputError
from coresched.logs import event, logging_to_stderr

_logger = logging.getLogger(__name__)

DEFAULT_ENVOY_LISTEN = "127.0.0.1:8080"


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "epp",
        summary="an endpoint picker for Envoy and the Gateway API Inference Extension",
        description="Tell Envoy where each request shall go: to the worker that has its trajectory's cache,\n"
        "while that worker's load is within a bound (LBCH). Speaks the endpoint picker protocol of\n"
        "the Gateway API Inference Extension over external processing (ext_proc), and takes Envoy's\n"
        "gRPC access log at the same address, which tells it when a request has ended. The label is\n"
        "the header x-smg-routing-key, else x-session-id, else --label-header; bodies are not read.\n"
        "Prints the address it listens on. On SIGTERM or Ctrl-C its health says that it does not\n"
        "serve, and it answers on until nothing is in flight or the grace period is over; a second\n"
        "signal ends it at once.",
        example="coresched epp --listen 127.0.0.1:9002 \\\n"
        "    --worker 10.0.0.1:30000 --worker 10.0.0.2:30000=2",
    )
    add_listen(
        parser,
        default="127.0.0.1:9002",
        warning="whoever can connect may end counts and see the addresses of workers",
    )
    parser.add_argument(
        "--worker",
        action="append",
        default=[],
        type=weighted,
        dest="workers",
        metavar="IP:PORT[=WEIGHT]",
        help="address of an engine worker, as Envoy has it, and its capacity relative to the others (default "
        "1); repeat for each worker",
    )
    parser.add_argument(
        "--workers-file",
        type=Path,
        metavar="FILE",
        help="more workers, one a line (IP:PORT or IP:PORT=WEIGHT); read again whenever it changes",
    )
    parser.add_argument(
        "--label-header",
        action="append",
        default=[],
        dest="label_headers",
        metavar="NAME",
        help="a header that gives the label if x-smg-routing-key and x-session-id do not; repeat for more, "
        "tried in this order",
    )
    parser.add_argument(
        "--max-in-flight",
        type=count,
        metavar="N",
        help="most requests in flight on a worker; when all have, requests get 429 (default: no limit)",
    )
    for name, default, text in (
        (
            "--log-wait-s",
            5.0,
            "seconds that the line of a request in Envoy's access log may take once it is due",
        ),
        ("--longest-s", 3600.0, "seconds after which a streamed request whose line was lost counts no more"),
    ):
        parser.add_argument(
            name,
            type=number(above=0),
            default=default,
            metavar="S",
            help=f"{text} (default %(default)g)",
        )
    add_health(parser)
    parser.add_argument(
        "--envoy-config",
        action="store_true",
        help="print an Envoy configuration (YAML) for this picker and these workers, to start from, and exit",
    )
    parser.add_argument(
        "--envoy-listen",
        metavar="IP:PORT",
        help=f"where the Envoy of --envoy-config listens (default {DEFAULT_ENVOY_LISTEN})",
    )
    add_metrics(parser, shows="the addresses of workers")
    add_routing(parser)
    add_grace(parser, what="requests in flight")
    add_logging(parser, debug="streams of Envoy's access log")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    with logging_to_stderr("coresched epp", args.log, args.log_level):
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    # Here, so that the other commands start without gRPC.
    from coresched_envoy.endpoints import Endpoint, checked_endpoints
    from coresched_envoy.members import WorkersFile, joined
    from coresched_envoy.server import Settings, serve, worker_state

    from coresched.gateway.fleet import Fleet
    from coresched.listen import TcpAddress, listen_address, two_addresses

    check_routing(args)
    given = checked_endpoints(args.workers, "--worker")
    file = WorkersFile(args.workers_file) if args.workers_file is not None else None
    if not given and file is None:
        raise InputError("--worker or --workers-file must be given, such as --worker 10.0.0.1:30000")
    workers = joined(given, file.read()) if file is not None else given
    label_headers = tuple(map(_header_name, args.label_headers))
    if args.envoy_config:
        return _print_configuration(args, workers, label_headers)
    if args.envoy_listen is not None:
        raise InputError(
            "--envoy-listen is for --envoy-config, which is not given; add it, or leave this out"
        )
    try:
        fleet = Fleet(
            [Endpoint(name, weight) for name, weight in workers.items()],
            router=args.router,
            load_bound=args.load_bound,
            virtual_nodes=args.virtual_nodes,
            slack=args.slack,
            failures_to_out=args.health_failures,
            notify=worker_state,
        )
    except ValueError as error:
        raise InputError(f"--worker, --workers-file or --virtual-nodes: {error}") from None
    settings = Settings(
        label_headers=label_headers,
        max_in_flight=args.max_in_flight,
        log_wait_s=args.log_wait_s,
        longest_s=args.longest_s,
        health_interval_s=args.health_interval_s,
        health_timeout_s=args.health_timeout_s,
    )
    address = listen_address(args.listen)
    if isinstance(address, TcpAddress) and not address.loopback:
        _warn(
            "open_to_all",
            f"{address.host} is not loopback, and there is no authentication: whoever reaches it may end "
            "counts and see the addresses of workers",
        )
    metrics = listen_address(args.metrics, "--metrics") if args.metrics is not None else None
    two_addresses(address, metrics)
    if isinstance(metrics, TcpAddress) and not metrics.loopback:
        _warn(
            "metrics_open_to_all",
            f"--metrics {metrics} is not loopback: whoever reaches it may read the addresses of workers",
        )
    asyncio.run(
        serve(
            fleet,
            settings,
            address,
            given,
            file=file,
            grace_s=args.grace_s,
            announce=lambda listening: print(f"coresched epp: listening on {listening}", flush=True),
            metrics=metrics,
            announce_metrics=lambda url: print(f"coresched epp: metrics at {url}", flush=True),
        )
    )
    return 0


def _print_configuration(
    args: argparse.Namespace, workers: Mapping[str, float], label_headers: Sequence[str]
) -> int:
    from coresched_envoy.configuration import address, envoy_configuration, picker_address

    from coresched.gateway.labels import LABEL_HEADERS

    configuration = envoy_configuration(
        listen=address(args.envoy_listen or DEFAULT_ENVOY_LISTEN, "--envoy-listen"),
        picker=picker_address(args.listen),
        workers=workers,
        label_headers=[*map(str, LABEL_HEADERS), *label_headers],
        load_bound=args.load_bound,
    )
    print(configuration, end="")
    return 0


def _warn(name: str, line: str) -> None:
    event(_logger, logging.WARNING, name, line)


def _header_name(text: str) -> str:
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", text):
        raise InputError(
            f"--label-header must be the name of an HTTP header, such as x-user-id, got {text!r}"
        )
    return text.lower()
