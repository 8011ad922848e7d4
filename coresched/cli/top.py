"""`coresched top`: a live view of a running service."""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from coresched.cli.parser import CommandParser, add_command
from coresched.errors import InputError

_CREDENTIALS = ("token", "ca", "certificate", "key")


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
    parser.add_argument(
        "--token",
        metavar="TOKEN",
        help="token of the tenant whose batches to show; other users of the machine can read arguments, so "
        "better set CORESCHED_TOKEN",
    )
    parser.add_argument(
        "--ca", type=Path, metavar="FILE", help="PEM file of the CA of the service's certificate; uses TLS"
    )
    parser.add_argument(
        "--certificate",
        type=Path,
        metavar="FILE",
        help="own certificate, where the service asks for one (PEM)",
    )
    parser.add_argument("--key", type=Path, metavar="FILE", help="private key of the own certificate (PEM)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # Here, so that the other commands start without gRPC.
    import grpc
    from rich.console import Console

    from coresched.client.credentials import channel
    from coresched.top.frame import Frame
    from coresched.top.watch import read_once, watch

    def connect() -> grpc.aio.Channel:
        return channel(args.target, token=args.token, ca=args.ca, certificate=args.certificate, key=args.key)

    console = Console(file=sys.stdout, highlight=False)  # else it takes any terminal for UTF-8
    try:
        if not (args.once or args.json):
            if not console.is_terminal:
                raise InputError("stdout must be a terminal for the live view; add --once or --json")
            asyncio.run(watch(args.target, connect, console))
            return 0
        snapshot = asyncio.run(read_once(args.target, connect))
    except ConnectionError as error:
        print(f"coresched top: {error}", file=sys.stderr)
        return 1
    except InputError as error:
        named = str(error).partition(" ")[0] in _CREDENTIALS
        raise InputError(f"--{error}" if named else str(error)) from None
    if args.json:
        print(json.dumps({"target": args.target, **snapshot.as_json()}))
    else:
        console.print(Frame(args.target, snapshot))
    return 0
