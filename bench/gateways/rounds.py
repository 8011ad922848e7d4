"""All that is measured, round after round, each with workers and gateways of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import uvloop

from bench.gateways import overhead, placement, transport
from bench.gateways.overhead import CASES
from bench.gateways.placement import Batch
from bench.gateways.processes import fake_workers
from bench.gateways.results import PLACEMENT, Rounds, Row
from bench.gateways.running import Subject, running
from bench.peers.gateways import Gateway
from bench.progress import announce

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


def all_rounds(gateways: Sequence[Gateway], effort: Effort) -> list[Row]:
    """The rows of all rounds. Raises SubjectFailedError, UnexpectedAnswerError and asyncio.TimeoutError."""
    rounds = Rounds()
    for number in range(effort.rounds):
        uvloop.run(one_round(number, gateways, effort, rounds))
    return rounds.rows()


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
        zipf = placement.zipf_labels(effort.held_requests, number)
        hot = [f"run-{number}-hot"] * (effort.held_requests // 2)
        async with placement.held([subject.port], workers, zipf) as loads:
            held = placement.max_over_mean(loads[-1])
        async with placement.held([subject.port], workers, hot) as loads:
            on_two = placement.on_two(loads[-1])
        rounds.add(
            PLACEMENT,
            batch.trajectories,
            subject.name,
            {
                "affinity": affinity,
                "live_imbalance": live,
                "held_imbalance": held,
                "hot_on_two": on_two,
            },
        )


async def _moves(before: Sequence[Subject], after: Sequence[Subject], effort: Effort, rounds: Rounds) -> None:
    labels = [f"task-{number}" for number in range(effort.labels)]
    for old, new in zip(before, after, strict=True):
        moved, to_new = await placement.moved(old, new, labels, WORKERS)
        rounds.add(PLACEMENT, effort.batch.trajectories, old.name, {"moved": moved, "moved_to_new": to_new})
