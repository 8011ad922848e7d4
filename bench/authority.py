"""`python -m bench authority`: a gateway that asks a service for each worker, beside one that does not."""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import ExitStack
from time import perf_counter

from bench.gateways.overhead import CASES, Measures, measured
from bench.gateways.processes import Program, check_system, fake_workers, free_port, started
from bench.gateways.results import Report, Rounds, as_json, print_report
from bench.gateways.running import Subject, SubjectFailedError, running
from bench.machine import this_machine
from bench.peers import installed
from bench.peers.gateways import Command, Gateway, coresched_gateway
from bench.progress import announce, clear
from coresched.cli.parser import CommandParser, add_command
from coresched.client.remote.options import Connection
from coresched.client.remote.router import ServiceRouter, routing
from coresched.errors import InputError

WORKERS = 3
OUTSTANDING = (1, 32)
LOCAL, SHARED, BOTH, ROUTER = "its own count", "--service", "both processes", "ServiceRouter"
DECISION = "route+end"

NOTES = (
    "Medians; IQR: interquartile range over median. Client, workers, gateway and",
    "service share this machine's cores: compare rows, not machines.",
    "CPU us: of the gateway, a request; both processes: of gateway and service;",
    "ServiceRouter: of the service, a decision on one stream. MiB: resident memory.",
)


class Together(Program):
    """Two programs as one, where the work of both is one request's."""

    def __init__(self, one: Program, other: Program) -> None:
        self._programs = (one, other)

    def cpu_s(self) -> float:
        return sum(program.cpu_s() for program in self._programs)

    def resident_bytes(self) -> int:
        return sum(program.resident_bytes() for program in self._programs)


def add_parser(commands: argparse._SubParsersAction[CommandParser]) -> None:
    parser = add_command(
        commands,
        "authority",
        summary="coresched gateway --service beside one with its own count",
        description="Put the same load on a gateway with its own count and on one that asks `coresched\n"
        "serve` for each worker; and time the decision alone, one and 32 at a time on one stream.\n"
        "Linux only.",
        example="python -m bench authority --quick",
    )
    parser.add_argument(
        "--quick", action="store_true", help="one short round: to see that it runs, not to quote"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        check_system()
        if installed("uvloop") is None:
            raise InputError("uvloop must be installed; pip install 'coresched[bench]'")
    except InputError as error:
        print(f"python -m bench authority: {error}", file=sys.stderr)
        return 2
    import uvloop

    machine, rounds = this_machine(), Rounds()
    repeats, timings, seconds = (1, 1, 0.2) if args.quick else (5, 4, 0.25)
    try:
        for number in range(repeats):
            announce(f"round {number + 1} of {repeats}")
            uvloop.run(one_round(rounds, timings, seconds))
    except SubjectFailedError as error:
        clear()
        print(f"python -m bench authority: {error}", file=sys.stderr)
        return 1
    clear()
    report = Report(args.command_line, machine, repeats, rounds.rows(), ())
    if args.json:
        print(as_json(report))
    else:
        print_report(report, NOTES)
    return 0


async def one_round(rounds: Rounds, timings: int, seconds: float) -> None:
    with ExitStack() as stack:
        ports = stack.enter_context(fake_workers(WORKERS))
        address = f"127.0.0.1:{free_port()}"
        service = stack.enter_context(started(_serve(address, ports)))
        gateways = [Gateway(LOCAL, coresched_gateway().command), Gateway(SHARED, _asking(address))]
        async with running(gateways, ports) as (local, shared):
            assert shared.program is not None
            both = Subject(BOTH, shared.port, Together(shared.program, service))
            subjects = [local, shared, both]
            for case in CASES:
                for timing in range(timings):
                    turn = timing % len(subjects)
                    for subject in subjects[turn:] + subjects[:turn]:
                        rounds.add(
                            case.name, case.connections, subject.name, await measured(subject, case, seconds)
                        )
        async with routing(Connection(target=address), wait_s=60) as router:
            for outstanding in OUTSTANDING:
                for _ in range(timings):
                    taken = await _decisions(router, service, outstanding, seconds)
                    rounds.add(DECISION, outstanding, ROUTER, taken)


def _serve(address: str, ports: list[int]) -> list[str]:
    return [
        *(sys.executable, "-m", "coresched", "serve", "--listen", address, "--journal", "none"),
        *("--grace-s", "0", *(f"--worker=http://127.0.0.1:{port}" for port in ports)),
    ]


def _asking(service: str) -> Command:
    return lambda port, metrics, workers: [
        *(sys.executable, "-m", "coresched", "gateway", "--listen", f"127.0.0.1:{port}"),
        *("--service", service, "--service-wait-s", "60"),
    ]


async def _decisions(router: ServiceRouter, service: Program, outstanding: int, seconds: float) -> Measures:
    """Routes, each ended at once, so many waiting at a time; the CPU time is the service's."""
    latencies: list[float] = []
    before, began = service.cpu_s(), perf_counter()
    until = began + seconds

    async def one_by_one(label: str) -> None:
        while (asked_at := perf_counter()) < until:
            (await router.route(label)).end()
            latencies.append(perf_counter() - asked_at)

    await asyncio.gather(*(one_by_one(f"task-{number}") for number in range(outstanding)))
    lasted = perf_counter() - began
    latencies.sort()
    return {
        "requests_per_s": len(latencies) / lasted,
        "p50_s": latencies[len(latencies) // 2],
        "p99_s": latencies[len(latencies) * 99 // 100],
        "cpu_s": (service.cpu_s() - before) / len(latencies),
    }
