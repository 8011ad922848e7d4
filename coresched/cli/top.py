"""`coresched top`: a live view of a running service."""

import argparse
import asyncio
import json
import sys

from coresched.cli.connection import add_credential_options, connection_of, flags_named, uses_tls
from coresched.cli.parser import CommandParser, add_command
from coresched.errors import InputError


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "top",
        summary="watch the batches and workers of a service",
        description="Show the batches of a running `coresched serve`, how deep their chains are, the\n"
        "environment queue, and the workers with their requests in flight, once a second. While\n"
        "the service is away it keeps trying. q or Ctrl-C ends it.",
        example="coresched top 127.0.0.1:50071",
    )
    parser.add_argument(
        "target",
        nargs="?",
        default="127.0.0.1:50071",
        metavar="TARGET",
        help="HOST:PORT or unix:PATH of the service (default %(default)s)",
    )
    parser.add_argument("--once", action="store_true", help="print one frame and end")
    parser.add_argument("--json", action="store_true", help="print what one frame shows as JSON and end")
    add_credential_options(parser, "token of the tenant whose batches to show")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # Here, so that the other commands start without gRPC.
    import grpc
    from rich.console import Console

    from coresched.client.credentials import channel
    from coresched.top.frame import Frame
    from coresched.top.watch import read_once, watch

    connection = connection_of(args)

    def connect() -> grpc.aio.Channel:
        return channel(args.target, **connection)

    console = Console(file=sys.stdout, highlight=False)  # else it takes any terminal for UTF-8
    tls = uses_tls(args)
    try:
        with flags_named("TARGET"):
            if not (args.once or args.json):
                if not console.is_terminal:
                    raise InputError("stdout must be a terminal for the live view; add --once or --json")
                asyncio.run(watch(args.target, connect, console, tls=tls))
                return 0
            snapshot = asyncio.run(read_once(args.target, connect, tls=tls))
    except ConnectionError as error:
        print(f"coresched top: {error}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps({"target": args.target, **snapshot.as_json()}))
    else:
        console.print(Frame(args.target, snapshot))
    return 0
