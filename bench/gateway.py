"""`python -m bench gateway`: our gateway beside others, and without any."""

import argparse
import asyncio
import sys

from bench.gateways.processes import check_system
from bench.machine import this_machine
from bench.peers import installed
from bench.peers.envoy import found_envoys
from bench.peers.gateways import coresched_gateway, found_gateways
from bench.progress import clear
from coresched.cli.parser import CommandParser, add_command
from coresched.errors import InputError

_NEEDED = ("httpx", "uvloop")


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "gateway",
        summary="coresched gateway and epp beside smg, sglang-router and Envoy",
        description="Put the same load on coresched gateway, on smg, sglang-router and Envoy (alone, and\n"
        "with coresched epp) where they are installed, and on a worker itself: what a request\n"
        "costs, whether labels stay with their worker, and how even the load is. Also the routed\n"
        "httpx transport beside plain httpx. Linux only.",
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
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="TEXT",
        help="only gateways with this in their name, such as envoy; repeat for more",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        check_system()
        if missing := [name for name in _NEEDED if installed(name) is None]:
            raise InputError(f"{' and '.join(missing)} must be installed; pip install 'coresched[bench]'")
        peers, absent = found_gateways(args.smg, args.sglang_router_python, install=args.install_peers)
        envoys, without = found_envoys(install=args.install_peers)
        compared = [
            gateway
            for gateway in (coresched_gateway(), *peers, *envoys)
            if not args.only or any(text.lower() in gateway.name.lower() for text in args.only)
        ]
        if not compared:
            raise InputError(f"--only {' '.join(args.only)} is in no subject's name")
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
        rows = all_rounds(compared, effort)
    except (SubjectFailedError, UnexpectedAnswerError, asyncio.TimeoutError) as error:
        clear()
        print(f"python -m bench gateway: {error or 'an answer took too long'}", file=sys.stderr)
        return 1
    clear()
    report = Report(args.command_line, machine, effort.rounds, rows, [*absent, *without])
    if args.json:
        print(as_json(report))
    else:
        print_report(report)
    return 0
