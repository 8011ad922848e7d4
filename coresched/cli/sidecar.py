"""`coresched sidecar`: an HTTP proxy that schedules a harness through its LLM and tool endpoints."""

import argparse
import asyncio
import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from coresched.cli.connection import add_credential_options, connection_of, flags_named
from coresched.cli.options import add_caas_options
from coresched.cli.parser import CommandParser, add_command, count, number, weighted
from coresched.cli.server_options import (
    add_grace,
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
    from coresched.gateway.fleet import Fleet
    from coresched.gateway.workers import Worker
    from coresched.listen import TcpAddress, UnixAddress
    from coresched.sidecar.batch import BatchOptions
    from coresched.sidecar.server import Settings

_KEY_VARIABLE = "CORESCHED_API_KEY"

_logger = logging.getLogger(__name__)


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "sidecar",
        summary="an HTTP proxy that schedules a harness it is the LLM and the tool server of",
        description="Stand between a harness and both its LLM and its tool server, and give its tasks\n"
        "sample and environment slots, without a change to the harness. A task is known by a label\n"
        "header or by an API key of its own; a tool call by the assistant message that asked for it.\n"
        "Prints the address it listens on. Stops on SIGTERM or Ctrl-C: open requests may go on for\n"
        "the grace period; a second signal ends them at once.",
        example="coresched sidecar --llm http://127.0.0.1:30000 --tools http://127.0.0.1:1984 \\\n"
        "    --sample-concurrency 30 --environment-concurrency 3",
    )
    add_listen(
        parser,
        default="127.0.0.1:8090",
        warning="whoever can connect may use the LLM and the tools, so keep to loopback or a unix socket "
        "unless the network is trusted",
    )
    _add_endpoints(parser)
    add_routing(parser)
    _add_schedule(parser)
    _add_times(parser)
    add_metrics(parser, shows="counts")
    add_grace(parser, what="open requests")
    add_logging(parser, debug="whose call each tool call was taken for")
    parser.set_defaults(run=run)


def _add_endpoints(parser: CommandParser) -> None:
    endpoints = parser.add_argument_group("what it stands before")
    endpoints.add_argument(
        "--llm", metavar="URL", help="base URL of the LLM; requests for /v1/... go there (or use --worker)"
    )
    endpoints.add_argument(
        "--worker",
        action="append",
        default=[],
        type=weighted,
        dest="workers",
        metavar="URL[=WEIGHT]",
        help="base URL of an engine worker, and its capacity relative to the others (default 1); repeat for "
        "each worker, and turns are routed among them by their trajectory (LBCH)",
    )
    endpoints.add_argument(
        "--api-key",
        metavar="KEY",
        help=f"sent to the LLM instead of what clients send; other users of the machine can read arguments, "
        f"so better set {_KEY_VARIABLE}",
    )
    endpoints.add_argument(
        "--label-from",
        choices=["key", "prompt"],
        default="key",
        help="what names a trajectory that sends no label header: the API key of its own, or, where all send "
        "the same key, how its prompt begins (default %(default)s)",
    )
    endpoints.add_argument(
        "--tools", metavar="URL", help="base URL of the tool server, to which every other request goes"
    )
    endpoints.add_argument(
        "--tool-path",
        default="/call-tool",
        metavar="PATH",
        help="where tool calls are posted (default %(default)s)",
    )
    endpoints.add_argument(
        "--max-body-mib",
        type=number(above=0),
        default=64.0,
        metavar="MIB",
        help="largest request body (default %(default)g)",
    )
    endpoints.add_argument(
        "--connect-timeout-s",
        type=number(above=0),
        default=5.0,
        metavar="S",
        help="seconds to connect to the LLM or the tools; there is no limit to their answers "
        "(default %(default)g)",
    )


def _add_schedule(parser: CommandParser) -> None:
    schedule = parser.add_argument_group("the scheduling")
    schedule.add_argument(
        "--sample-concurrency", type=count, metavar="C_S", help="trajectories admitted at once"
    )
    schedule.add_argument(
        "--environment-concurrency",
        type=count,
        metavar="C_E",
        help="stages at once: all tool calls of one assistant message are a stage (default: no limit)",
    )
    schedule.add_argument(
        "--environment-policy",
        choices=["caas", "fcfs"],
        default="caas",
        help="order in which stages get slots (default %(default)s)",
    )
    add_caas_options(schedule)
    schedule.add_argument(
        "--history",
        metavar="FILE",
        help="a file of `coresched trace history`: admit the longest expected trajectories first (default: "
        "in order of arrival)",
    )
    schedule.add_argument(
        "--hold",
        choices=["reply", "call"],
        default="reply",
        help="what waits for a slot: the reply that asks for tool calls, so that no tool timeout runs "
        "meanwhile, or the calls (default %(default)s)",
    )
    schedule.add_argument(
        "--service",
        metavar="HOST:PORT|unix:PATH",
        help="a running `coresched serve` whose batch it takes part in (default: a batch of its own)",
    )
    schedule.add_argument("--batch", metavar="NAME", help="the batch's name there")
    schedule.add_argument(
        "--record",
        metavar="FOLDER",
        help="write down each turn with its usage and each stage, for `coresched trace import` and "
        "`coresched report`",
    )
    add_credential_options(parser, "token of the service")


def _add_times(parser: CommandParser) -> None:
    times = parser.add_argument_group("how long things may stand still")
    times.add_argument(
        "--queue-deadline-s",
        type=number(above=0),
        metavar="S",
        help="a call that waited so long for a slot is answered with 503 and never executed; a held reply is "
        "handed out, and its calls wait (default: no limit)",
    )
    for name, default, text in (
        ("--stage-idle-s", 60.0, "a slot goes back after so long without a call in it"),
        ("--idle-s", 300.0, "a trajectory ends after so long without any request"),
        (
            "--end-after-s",
            1.0,
            "a trajectory ends so long after a reply without tool calls, or after a 4xx of the LLM that does "
            "not pass by itself, unless it goes on",
        ),
    ):
        times.add_argument(
            name,
            type=number(above=0),
            default=default,
            metavar="S",
            help=f"{text} (default %(default)g)",
        )


def run(args: argparse.Namespace) -> int:
    with logging_to_stderr("coresched sidecar", args.log, args.log_level):
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    # Here, so that the other commands start without the HTTP stack.
    from coresched.listen import listen_address, two_addresses
    from coresched.sidecar.server import serve

    settings = _settings(args)
    address = listen_address(args.listen)
    metrics = listen_address(args.metrics, "--metrics") if args.metrics is not None else None
    two_addresses(address, metrics)
    _warn_if_open(address, "whoever reaches it may use the LLM and the tools")
    if metrics is not None:
        _warn_if_open(metrics, "whoever reaches it may read the counts")
    serving = serve(
        settings,
        address,
        grace_s=args.grace_s,
        announce=lambda where: print(f"coresched sidecar: listening on {where}", flush=True),
        metrics=metrics,
        announce_metrics=lambda url: print(f"coresched sidecar: metrics at {url}", flush=True),
    )
    from coresched.client.errors import ServiceError
    from coresched.recording.writer import RecordingError

    try:
        asyncio.run(serving)
    except RecordingError as error:
        event(_logger, logging.ERROR, "recording_incomplete", str(error))
        return 1
    except ServiceError as error:
        raise InputError(f"--service {args.service}: {error}") from None
    except ValueError as error:
        if args.service is None or isinstance(error, InputError):
            raise
        raise InputError(f"--service {args.service}: {error}") from None
    return 0


def _settings(args: argparse.Namespace) -> "Settings":
    from coresched.sidecar.server import Settings
    from coresched.sidecar.terms import Terms

    if args.tools is None:
        raise InputError("--tools must be given, such as --tools http://127.0.0.1:1984")
    path = args.tool_path
    if not path.startswith("/") or path.startswith(("/v1/", "/coresched/")) or set(path) & set("{}?# "):
        raise InputError(
            "--tool-path must be a path that is not under /v1/ or /coresched/, such as /call-tool, "
            f"got {path!r}"
        )
    return Settings(
        llm=_llm(args),
        tools=_server("--tools", args.tools),
        batch=_batch(args),
        tool_path=path,
        hold=args.hold,
        label_from=args.label_from,
        api_key=_api_key(args),
        terms=Terms(
            queue_deadline_s=args.queue_deadline_s,
            stage_idle_s=args.stage_idle_s,
            idle_s=args.idle_s,
            end_after_s=args.end_after_s,
        ),
        max_body_bytes=int(args.max_body_mib * (1 << 20)),
        connect_timeout_s=args.connect_timeout_s,
    )


def _llm(args: argparse.Namespace) -> "Worker | Fleet":
    from coresched.gateway.fleet import Fleet
    from coresched.gateway.workers import checked_workers, worker_at

    if args.llm is not None and args.workers:
        raise InputError("--llm and --worker are given both; one server is --llm, several are --worker")
    if args.llm is not None:
        refuse_routing(args, "--llm")
        return _server("--llm", args.llm.rstrip("/").removesuffix("/v1"))
    if not args.workers:
        raise InputError("--llm must be given, such as --llm http://127.0.0.1:30000, or --worker for several")
    check_routing(args)
    workers = checked_workers([worker_at(url, weight) for url, weight in args.workers])
    try:
        return Fleet(
            workers,
            router=args.router,
            load_bound=args.load_bound,
            virtual_nodes=args.virtual_nodes,
            slack=args.slack,
            notify=_notify,
        )
    except ValueError as error:
        raise InputError(f"--worker or --virtual-nodes: {error}") from None


def _notify(worker: "Worker", line: str) -> None:
    level, name = (logging.INFO, "worker_back") if worker.healthy else (logging.WARNING, "worker_out")
    event(_logger, level, name, line, worker=worker.name)


def _server(flag: str, url: str) -> "Worker":
    from coresched.gateway.workers import worker_at

    try:
        return worker_at(url)
    except InputError as error:
        raise InputError(str(error).replace("--worker", flag, 1)) from None


def _api_key(args: argparse.Namespace) -> str | None:
    key: str | None = args.api_key if args.api_key is not None else os.environ.get(_KEY_VARIABLE) or None
    if key is not None and not (key and key.isascii() and key.isprintable() and " " not in key):
        name = "--api-key" if args.api_key is not None else _KEY_VARIABLE
        raise InputError(f"{name} must be printable ASCII without spaces; it is not shown here")
    return key


def _batch(args: argparse.Namespace) -> "BatchOptions":
    from coresched.sidecar.batch import BatchOptions, make_batch

    if args.sample_concurrency is None:
        raise InputError("--sample-concurrency must be given: how many trajectories may run at once (C_S)")
    if (args.service is None) != (args.batch is None):
        given, missing = ("--batch", "--service") if args.service is None else ("--service", "--batch")
        raise InputError(f"{given} needs {missing}, too")
    options = BatchOptions(
        sample_concurrency=args.sample_concurrency,
        environment_concurrency=args.environment_concurrency,
        environment_policy=args.environment_policy,
        band_s=args.band_s,
        bucket_s=args.bucket_s,
        service=args.service,
        name=args.batch,
        credentials=dict(connection_of(args)),
        history=args.history,
    )
    with flags_named("--service"):
        try:
            make_batch(options)
        except ValueError as error:
            raise InputError(str(error)) from None
    return replace(options, record=args.record)


def _warn_if_open(address: "TcpAddress | UnixAddress", risk: str) -> None:
    from coresched.listen import TcpAddress

    if isinstance(address, TcpAddress) and not address.loopback:
        event(
            _logger,
            logging.WARNING,
            "open_to_all",
            f"{address} is not loopback, and there is no authentication: {risk}",
        )
