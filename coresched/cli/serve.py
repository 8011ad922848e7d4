"""`coresched serve`: router and batches as a gRPC service for many harness processes."""

import argparse
import asyncio
import sys

from coresched.cli.parser import CommandParser, add_command, count, number
from coresched.errors import InputError


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
    parser.add_argument(
        "--listen",
        default="127.0.0.1:50071",
        metavar="HOST:PORT|unix:PATH",
        help="where to listen; port 0 is any free one; whoever can connect may do everything, so keep to "
        "loopback or a unix socket unless the network is trusted (default %(default)s)",
    )
    parser.add_argument(
        "--worker",
        action="append",
        default=[],
        type=_weighted,
        dest="workers",
        metavar="NAME[=WEIGHT]",
        help="a worker routable from the start, and its capacity relative to the others (default 1); "
        "repeat for each worker",
    )
    parser.add_argument(
        "--load-bound",
        type=number(at_least=1),
        default=1.25,
        metavar="A",
        help="a worker takes requests up to A times the mean in flight (default %(default)s)",
    )
    parser.add_argument(
        "--virtual-nodes",
        type=count,
        default=128,
        metavar="N",
        help="points on the hash ring per unit of weight, at most 65536 (default %(default)s)",
    )
    parser.add_argument(
        "--grace-s",
        type=number(at_least=0),
        default=10.0,
        metavar="S",
        help="seconds that open calls and streams may go on after the signal to stop (default %(default)g)",
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
    parser.set_defaults(run=run)


def _weighted(text: str) -> tuple[str, float]:
    name, equals, weight = text.rpartition("=")
    if not equals:
        return text, 1.0
    return name, number(above=0)(weight)


def run(args: argparse.Namespace) -> int:
    # Here, so that the other commands start without gRPC.
    from coresched.service.batches.limits import Limits
    from coresched.service.listen import TcpAddress, listen_address
    from coresched.service.server import serve
    from coresched.service.table import RoutingTable

    workers: dict[str, float] = {}
    for name, weight in args.workers:
        if name in workers:
            raise InputError(f"--worker must name each worker once, got {name!r} again")
        workers[name] = weight
    try:
        table = RoutingTable(workers, load_bound=args.load_bound, virtual_nodes=args.virtual_nodes)
    except ValueError as error:
        raise InputError(f"--worker or --virtual-nodes: {error}") from None
    address = listen_address(args.listen)
    if isinstance(address, TcpAddress) and not address.loopback:
        print(
            f"coresched serve: {address.host} is not loopback, and there is no authentication: "
            "whoever reaches it may route, release and remove workers, and open and close batches",
            file=sys.stderr,
        )

    def announce(listening: str) -> None:
        print(f"coresched serve: listening on {listening}", flush=True)

    limits = Limits(open_batches=args.max_open_batches, waiters=args.max_waiters)
    asyncio.run(serve(table, address, grace_s=args.grace_s, announce=announce, limits=limits))
    return 0
