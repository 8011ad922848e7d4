"""`python -m bench gateway`: our gateway beside others, and without any."""

import argparse
import asyncio
import sys

from bench.gateways.processes import check_system
from bench.machine import this_machine
from bench.peers import installed
from bench.peers.gateways import coresched_gateway, found_gateways
from bench.progress import clear
from coresched.cli.parser import CommandParser, add_command
from coresched.errors import InputError

_NEEDED = ("httpx", "uvloop")


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "gateway",
        summary="coresched gateway beside smg and sglang-router",
        description="Put the same load on coresched gateway, on smg and sglang-router where they are\n"
        "installed, and on a worker itself: what a request costs, whether labels stay with their\n"
        "worker, and how even the load is. Also the routed httpx transport beside plain httpx.\n"
        "Linux only.",
        example="python -m bench gateway --install-peers",
    )
    parser.add_argument(
        "--quick", action="store_true", help="one short round: to see that it runs, not to quote"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument(
        "--install-peers",
        action="store_true",
        help="install the absent peers with pip, each into an environment under ~/.cache/coresched/peers, "
        "where later runs find them",
    )
    parser.add_argument("--smg", metavar="PATH", help="the program smg of SGLang Model Gateway 1.x")
    parser.add_argument(
        "--sglang-router-python", metavar="PATH", help="a Python that has the package sglang-router"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        check_system()
        if missing := [name for name in _NEEDED if installed(name) is None]:
            raise InputError(f"{' and '.join(missing)} must be installed; pip install 'coresched[bench]'")
        peers, absent = found_gateways(args.smg, args.sglang_router_python, install=args.install_peers)
    except InputError as error:
        print(f"python -m bench gateway: {error}", file=sys.stderr)
        return 2
    # Here, so that the other benchmarks run without these packages.
    from bench.gateways.client import UnexpectedAnswerError
    from bench.gateways.results import Report, as_json, print_report
    from bench.gateways.rounds import FULL, QUICK, all_rounds
    from bench.gateways.running import SubjectFailedError

    effort = QUICK if args.quick else FULL
    machine = this_machine()
    try:
        rows = all_rounds([coresched_gateway(), *peers], effort)
    except (SubjectFailedError, UnexpectedAnswerError, asyncio.TimeoutError) as error:
        clear()
        print(f"python -m bench gateway: {error or 'an answer took too long'}", file=sys.stderr)
        return 1
    clear()
    report = Report(args.command_line, machine, effort.rounds, rows, absent)
    if args.json:
        print(as_json(report))
    else:
        print_report(report)
    return 0
