"""`coresched aibrix`: the endpoint of AIBrix's routing strategy `external`."""

import argparse
import asyncio
import logging

from coresched.cli.parser import CommandParser, add_command, number
from coresched.cli.server_options import add_listen, add_logging, add_metrics, add_routing, check_routing
from coresched.errors import InputError
from coresched.logs import event, logging_to_stderr

_logger = logging.getLogger(__name__)

_MOST_TOKEN_BYTES = 8192
"""What AIBrix takes."""


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "aibrix",
        summary="picks replicas for AIBrix's gateway, as its external routing strategy",
        description="Answer the replica selection requests of AIBrix's gateway, routing strategy\n"
        "external: of the pods that it names, the one that has the trajectory's cache,\n"
        "while that pod's load is within a bound (LBCH). Loads are AIBrix's\n"
        "runningRequests. The label is a policy attribute, else the trace id of\n"
        "traceparent, which a client sends to AIBrix.\n"
        "Prints the address it listens on. Stops on SIGTERM or Ctrl-C.",
        example="coresched aibrix --listen 0.0.0.0:8080 --token-file /run/secrets/router-token",
    )
    add_listen(
        parser,
        default="127.0.0.1:8080",
        warning="AIBrix's gateway must reach it; give --token-file unless the network is trusted",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="the bearer token that requests must have; AIBrix's AIBRIX_EXTERNAL_ROUTER_AUTH_TOKEN_FILE "
        "(default: none is asked for)",
    )
    parser.add_argument(
        "--label-attribute",
        default="label",
        metavar="NAME",
        help="the policy attribute that holds the trajectory label (default %(default)s)",
    )
    parser.add_argument(
        "--pending-ms",
        type=number(at_least=0),
        default=20.0,
        metavar="MS",
        help="how long a pick adds to its pod's load, until AIBrix surely counts it; 0 for not at all "
        "(default %(default)g)",
    )
    add_metrics(parser, shows="how many decisions of which kind there were")
    add_routing(parser)
    add_logging(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    with logging_to_stderr("coresched aibrix", args.log, args.log_level):
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    # Here, so that the other commands start without the HTTP stack.
    from coresched_aibrix.endpoint import Endpoint
    from coresched_aibrix.picker import Picker
    from coresched_aibrix.server import serve

    from coresched.listen import TcpAddress, listen_address, two_addresses

    def announce(listening: str) -> None:
        print(f"coresched aibrix: listening on {listening}", flush=True)

    check_routing(args)
    if args.router != "lbch":
        raise InputError(
            f"--router {args.router} counts what it placed until it is released, which AIBrix never says; "
            "leave it out"
        )
    if not args.label_attribute.strip():
        raise InputError(
            f"--label-attribute must be the name of a policy attribute, got {args.label_attribute!r}"
        )
    try:
        picker = Picker(
            load_bound=args.load_bound,
            virtual_nodes=args.virtual_nodes,
            slack=args.slack,
            pending_s=args.pending_ms / 1e3,
        )
    except ValueError as error:
        raise InputError(f"--virtual-nodes: {error}") from None
    token = None if args.token_file is None else _token(args.token_file)
    address = listen_address(args.listen)
    if isinstance(address, TcpAddress) and not address.loopback and token is None:
        event(
            _logger,
            logging.WARNING,
            "open_to_all",
            f"{address.host} is not loopback, and there is no --token-file: whoever reaches it may ask, and "
            "put pods on the ring",
        )
    metrics = listen_address(args.metrics, "--metrics") if args.metrics is not None else None
    two_addresses(address, metrics)
    serving = serve(
        Endpoint(picker, label_attribute=args.label_attribute, token=token),
        address,
        announce=announce,
        metrics=metrics,
        announce_metrics=lambda url: print(f"coresched aibrix: metrics at {url}", flush=True),
    )
    try:
        import uvloop
    except ImportError:  # a platform without it
        asyncio.run(serving)
    else:
        uvloop.run(serving)
    return 0


def _token(file: str) -> str:
    """The token of a file, as AIBrix reads it. Raises InputError, which never shows it."""
    where = f"--token-file {file!r}"
    try:
        with open(file, "rb") as opened:
            token = opened.read(_MOST_TOKEN_BYTES + 3).decode("ascii").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no ASCII text"
        raise InputError(f"{where} cannot be read: {reason}; give the file with the token") from None
    if not 1 <= len(token) <= _MOST_TOKEN_BYTES or not token.isprintable():
        raise InputError(
            f"{where} must hold one line of 1 to {_MOST_TOKEN_BYTES} characters; make a token with "
            "`openssl rand -hex 32`"
        )
    return token
