"""The options that `serve`, `gateway` and `worker` have in common, worded once."""

import argparse

from coresched.cli.parser import CommandParser, count, integer, number
from coresched.core.checks import check_slack
from coresched.core.routers import DEFAULT_VIRTUAL_NODES, ROUTERS
from coresched.errors import InputError
from coresched.logs import LEVELS

DEFAULT_LOAD_BOUND = 1.25


def add_listen(parser: CommandParser, *, default: str, warning: str = "") -> None:
    """``warning`` says who may do what at that address."""
    caution = f"; {warning}" if warning else ""
    parser.add_argument(
        "--listen",
        default=default,
        metavar="HOST:PORT|unix:PATH",
        help=f"where to listen; port 0 is any free one{caution} (default %(default)s)",
    )


def add_metrics(parser: CommandParser, *, shows: str) -> None:
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT|unix:PATH",
        help=f"where Prometheus scrapes /metrics, without a token; it shows {shows} (default: nowhere)",
    )


def add_routing(parser: CommandParser) -> None:
    """Which router, its load bound, and LBCH's hash ring; `check_routing` holds them to each other."""
    parser.add_argument(
        "--router",
        choices=ROUTERS,
        default="lbch",
        help="lbch: homes on a hash ring, the same in every process and after a restart; sticky-bounded: a "
        "trajectory begins on the least loaded worker, which this process alone knows (default %(default)s)",
    )
    parser.add_argument(
        "--load-bound",
        type=number(at_least=1),
        default=DEFAULT_LOAD_BOUND,
        metavar="A",
        help="a worker takes requests up to A times the mean in flight (default %(default)s)",
    )
    parser.add_argument(
        "--slack",
        type=_slack,
        default=0,
        metavar="N",
        help="requests that a worker may have beyond that, where they are few or one of several replicas "
        "counts its own only; at most 1000000 (default %(default)s)",
    )
    parser.add_argument(
        "--virtual-nodes",
        type=count,
        default=DEFAULT_VIRTUAL_NODES,
        metavar="N",
        help="points on the hash ring per unit of weight, at most 65536 (default %(default)s)",
    )


def _slack(text: str) -> int:
    try:
        return check_slack(integer(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def check_routing(args: argparse.Namespace) -> None:
    """Raises InputError for points on a ring that the router has not."""
    if args.router == "sticky-bounded" and args.virtual_nodes != DEFAULT_VIRTUAL_NODES:
        raise InputError(
            f"--virtual-nodes is {args.virtual_nodes}, which is for a hash ring; leave it out with --router "
            "sticky-bounded"
        )


def refuse_routing(args: argparse.Namespace, instead: str) -> None:
    """Where there is nothing to choose from. Raises InputError for what would have no effect."""
    usual = {
        "router": "lbch",
        "load_bound": DEFAULT_LOAD_BOUND,
        "slack": 0,
        "virtual_nodes": DEFAULT_VIRTUAL_NODES,
    }
    for name, value in usual.items():
        if (given := getattr(args, name)) != value:
            option = f"--{name.replace('_', '-')} {given}"
            raise InputError(f"{option} chooses among several --worker; leave it out with {instead}")


def add_health(parser: CommandParser) -> None:
    """How a server's own checks of its workers go."""
    for name, text in (
        ("--health-interval-s", "seconds between two GET /health on a worker"),
        ("--health-timeout-s", "seconds that a worker may take to answer one"),
    ):
        parser.add_argument(
            name, type=number(above=0), default=5.0, metavar="S", help=f"{text} (default %(default)g)"
        )
    parser.add_argument(
        "--health-failures",
        type=count,
        default=3,
        metavar="N",
        help="failures in a row after which a worker is out (default %(default)s)",
    )


def add_grace(parser: CommandParser, *, what: str) -> None:
    parser.add_argument(
        "--grace-s",
        type=number(at_least=0),
        default=10.0,
        metavar="S",
        help=f"seconds that {what} may go on after the signal to stop (default %(default)g)",
    )


def add_logging(parser: CommandParser, *, debug: str = "") -> None:
    """``debug`` is what only the lowest level shows."""
    shown = f"; debug shows {debug}" if debug else ""
    parser.add_argument(
        "--log",
        choices=["text", "json"],
        default="text",
        help="how lines on stderr look: sentences, or one JSON object each (default %(default)s)",
    )
    parser.add_argument(
        "--log-level",
        choices=LEVELS,
        default="info",
        help=f"lines below this are left out{shown} (default %(default)s)",
    )
