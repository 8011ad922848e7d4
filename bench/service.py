"""`python -m bench service`: what a routing call costs over each transport, beside a bare echo RPC."""

import argparse
import asyncio
from contextlib import ExitStack
from tempfile import TemporaryDirectory

from bench.cases.lbch import route_and_release, trajectory_labels, worker_names
from bench.machine import this_machine
from bench.progress import announce, clear
from bench.results import Report
from bench.serving.callers import Caller, calls_in_process, stream, unary
from bench.serving.report import Served, ServiceReport, as_json, print_report
from bench.serving.servers import (
    WORKERS,
    cores_apart,
    echo_server,
    our_server,
    require_clocks,
    running,
)
from bench.serving.turns import LoadedServer, in_turns, summarised
from bench.spread import Spread, spread_of
from bench.timing import FULL, QUICK, Effort, seconds_an_operation
from coresched.cli.parser import CommandParser, add_command
from coresched.core import LoadBoundedRouter

CALLERS: dict[str, Caller] = {"stream": stream, "unary": unary}
TRANSPORTS = ("tcp", "unix")
OUTSTANDING = (1, 32)
CALLS, QUICK_CALLS = 1000, 100


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "service",
        summary="a routing call over each transport, beside a bare echo RPC",
        description="Start `coresched serve` and a bare gRPC echo, and make the same calls to both: on the\n"
        "stream and unary, over TCP and a unix socket, one and 32 outstanding. Linux only.",
        example="python -m bench service --quick",
    )
    parser.add_argument(
        "--quick", action="store_true", help="few, short repeats: to see that it runs, not to quote"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    require_clocks()
    effort, calls = (QUICK, QUICK_CALLS) if args.quick else (FULL, CALLS)
    report = Report(args.command_line, this_machine(), effort.repeats, ())
    announce("in process")
    in_process = measure_in_process(effort)
    rows = asyncio.run(measure_all(calls, effort.repeats))
    clear()
    found = ServiceReport(report, in_process, rows)
    if args.json:
        print(as_json(found))
    else:
        print_report(found)
    return 0


def measure_in_process(effort: Effort) -> dict[str, Spread]:
    """CPU seconds a call of the router alone, and of the servicer's calls with their messages."""
    router = LoadBoundedRouter(worker_names(WORKERS))
    labels = trajectory_labels(WORKERS)
    placed = [router.route(label) for label in labels[: len(labels) // 4]]
    for worker in placed:
        router.release(worker)
    subjects = {"router": route_and_release(router, labels, placed), "calls": calls_in_process()}
    timings = seconds_an_operation(list(subjects.values()), effort)
    return {
        subject: spread_of([seconds / 2 for seconds in samples])  # an operation is two calls
        for subject, samples in zip(subjects, timings, strict=True)
    }


async def measure_all(calls: int, repeats: int) -> list[Served]:
    return [row for transport in TRANSPORTS for row in await measure(transport, calls, repeats)]


async def measure(transport: str, calls: int, repeats: int) -> list[Served]:
    """Both servers over one transport, which they keep for all of its cases."""
    rows = []
    with TemporaryDirectory() as folder, ExitStack() as stack:
        addresses = ["127.0.0.1:0"] * 2 if transport == "tcp" else [f"unix:{folder}/{n}" for n in range(2)]
        cores = stack.enter_context(cores_apart())
        started = [
            stack.enter_context(running(command(address), cores))
            for command, address in zip((our_server, echo_server), addresses, strict=True)
        ]
        servers = [LoadedServer(server) for server in started]
        for name, caller in CALLERS.items():
            for outstanding in OUTSTANDING:
                announce(f"{name}, {transport}, n = {outstanding}")
                ours, echo = await in_turns(servers, caller, outstanding, calls, repeats)
                rows.append(
                    Served(
                        f"{name}, {transport}",
                        outstanding,
                        summarised(ours),
                        summarised(echo),
                        spread_of([one.cpu_s / other.cpu_s for one, other in zip(ours, echo, strict=True)]),
                        spread_of([one.p50_s / other.p50_s for one, other in zip(ours, echo, strict=True)]),
                    )
                )
        for server in servers:
            await server.close()
    return rows
