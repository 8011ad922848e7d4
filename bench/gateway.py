"""`python -m bench gateway`: our gateway beside others, and without any."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import uvloop

from bench.gateways import overhead, placement, transport
from bench.gateways.client import UnexpectedAnswerError
from bench.gateways.overhead import CASES
from bench.gateways.placement import Batch
from bench.gateways.processes import check_system, fake_workers
from bench.gateways.results import PLACEMENT, Report, Rounds, as_json, print_report
from bench.gateways.running import Subject, SubjectFailedError, running
from bench.machine import this_machine
from bench.peers.gateways import Gateway, coresched_gateway, found_gateways
from bench.progress import announce, clear
from coresched.cli.parser import CommandParser, add_command
from coresched.errors import InputError

WORKERS = 3


@dataclass(frozen=True)
class Effort:
    """How many rounds, each with workers and gateways of its own; timings in a round, and their length."""

    rounds: int
    timings: int
    timing_s: float
    batch: Batch
    held_requests: int
    labels: int


FULL = Effort(5, 4, 0.25, Batch(trajectories=96, turns=12, longest_ms=400), held_requests=60, labels=1000)
QUICK = Effort(1, 1, 0.2, Batch(trajectories=24, turns=6, longest_ms=100), held_requests=30, labels=200)


def add_parser(commands: argparse._SubParsersAction[CommandParser]) -> None:
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
        peers, absent = found_gateways(args.smg, args.sglang_router_python, install=args.install_peers)
    except InputError as error:
        print(f"python -m bench gateway: {error}", file=sys.stderr)
        return 2
    effort = QUICK if args.quick else FULL
    machine = this_machine()
    rounds = Rounds()
    try:
        for number in range(effort.rounds):
            uvloop.run(one_round(number, [coresched_gateway(), *peers], effort, rounds))
    except (SubjectFailedError, UnexpectedAnswerError, asyncio.TimeoutError) as error:
        clear()
        print(f"python -m bench gateway: {error or 'an answer took too long'}", file=sys.stderr)
        return 1
    clear()
    report = Report(args.command_line, machine, effort.rounds, rounds.rows(), absent)
    if args.json:
        print(as_json(report))
    else:
        print_report(report)
    return 0


async def one_round(number: int, gateways: Sequence[Gateway], effort: Effort, rounds: Rounds) -> None:
    """Every measurement once, on new workers: their ports are their places on the rings."""
    with fake_workers(WORKERS + 1) as ports:
        workers = ports[:WORKERS]
        announce(f"round {number + 1} of {effort.rounds}: starting")
        async with running(gateways, workers) as subjects:
            await _costs(number, subjects, workers, effort, rounds)
            await _placements(number, subjects, workers, effort, rounds)
            announce(f"round {number + 1} of {effort.rounds}: a worker joins")
            async with running(gateways, ports) as after:
                await _moves(subjects, after, effort, rounds)


async def _costs(
    number: int, subjects: Sequence[Subject], workers: list[int], effort: Effort, rounds: Rounds
) -> None:
    direct = Subject("direct", workers[0])
    names = [subject.name for subject in subjects] + [direct.name, transport.PLAIN, transport.ROUTED]
    by_name = {subject.name: subject for subject in (*subjects, direct)}
    for case in CASES:
        for timing in range(effort.timings):
            turn = (number * effort.timings + timing) % len(names)  # each time another one begins
            taken = {}
            for name in names[turn:] + names[:turn]:
                announce(f"round {number + 1} of {effort.rounds}: {case.name}, {case.connections}, {name}")
                if name in by_name:
                    taken[name] = await overhead.measured(by_name[name], case, effort.timing_s)
                else:
                    taken[name] = await transport.measured(name, workers, case, effort.timing_s)
            for name in names:
                rounds.add(case.name, case.connections, name, taken[name])


async def _placements(
    number: int, subjects: Sequence[Subject], workers: list[int], effort: Effort, rounds: Rounds
) -> None:
    announce(f"round {number + 1} of {effort.rounds}: trajectories")
    batch = effort.batch
    kept = await asyncio.gather(
        *(placement.affinity_and_imbalance(subject, batch, len(workers), number) for subject in subjects)
    )
    for subject, (affinity, live) in zip(subjects, kept, strict=True):
        held = await placement.held_imbalance(subject, workers, effort.held_requests, number)
        rounds.add(
            PLACEMENT,
            batch.trajectories,
            subject.name,
            {"affinity": affinity, "live_imbalance": live, "held_imbalance": held},
        )


async def _moves(before: Sequence[Subject], after: Sequence[Subject], effort: Effort, rounds: Rounds) -> None:
    labels = [f"task-{number}" for number in range(effort.labels)]
    for old, new in zip(before, after, strict=True):
        moved, to_new = await placement.moved(old, new, labels, WORKERS)
        rounds.add(PLACEMENT, effort.batch.trajectories, old.name, {"moved": moved, "moved_to_new": to_new})
