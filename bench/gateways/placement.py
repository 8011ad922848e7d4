"""Where each gateway sends requests: do labels stay where they were, and is the load even?"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from time import perf_counter

from bench.gateways import exchange
from bench.gateways.client import Connection, connections, got
from bench.gateways.running import Subject, placed
from bench.gateways.worker import HELD, RELEASE

_HELD_IN_S = 30.0


@dataclass(frozen=True)
class Batch:
    """Trajectories that run at once: each has turns, of an inference of some ms and as long without one."""

    trajectories: int
    turns: int
    longest_ms: int


@dataclass(frozen=True)
class Turn:
    """When one inference began and ended, in seconds, and the worker that did it."""

    began: float
    ended: float
    worker: int


async def affinity_and_imbalance(
    subject: Subject, batch: Batch, workers: int, seed: int
) -> tuple[float, float]:
    """Run the batch: the fraction of turns on the worker of the turn before, and the imbalance over time.

    The same seed gives the same labels and durations. Imbalance: max over mean of the requests in flight on
    the workers, averaged over the time when every trajectory was still running.
    """
    async with connections(subject.port, batch.trajectories) as opened:
        trajectories = await asyncio.gather(
            *(
                _trajectory(connection, f"run-{seed}-task-{number}", batch, random.Random(f"{seed} {number}"))
                for number, connection in enumerate(opened)
            )
        )
    return affinity(trajectories), imbalance(trajectories, workers)


async def _trajectory(connection: Connection, label: str, batch: Batch, draw: random.Random) -> list[Turn]:
    turns = []
    await asyncio.sleep(draw.uniform(0, batch.longest_ms) / 1000)  # they do not all begin at once
    for _ in range(batch.turns):
        (request,) = exchange.requests([label], draw.randint(2, batch.longest_ms))
        began = perf_counter()
        worker = await connection.send(request)
        turns.append(Turn(began, perf_counter(), worker))
        await asyncio.sleep(draw.randint(2, batch.longest_ms) / 1000)
    return turns


def affinity(trajectories: Sequence[Sequence[Turn]]) -> float:
    """The fraction of turns, first ones left out, on the worker of the turn before."""
    pairs = [pair for turns in trajectories for pair in pairwise(turns)]
    return sum(before.worker == after.worker for before, after in pairs) / len(pairs)


def imbalance(trajectories: Sequence[Sequence[Turn]], workers: int) -> float:
    """Max over mean of the requests in flight on the workers, averaged over time.

    From when the last trajectory began to when the first one ended, while anything is in flight.
    """
    since = max(turns[0].began for turns in trajectories)
    until = min(turns[-1].ended for turns in trajectories)
    changes = sorted(
        change
        for turns in trajectories
        for turn in turns
        for change in ((turn.began, 1, turn.worker), (turn.ended, -1, turn.worker))
    )
    loads = [0] * workers
    weighted = lasted = 0.0
    now = changes[0][0]
    for time, by, worker in changes:
        seconds = min(time, until) - max(now, since)
        if seconds > 0 and any(loads):
            weighted += seconds * max_over_mean(loads)
            lasted += seconds
        loads[worker] += by
        now = time
    return weighted / lasted


def max_over_mean(loads: Sequence[int]) -> float:
    return max(loads) * len(loads) / sum(loads)


def zipf_labels(requests: int, seed: int) -> list[str]:
    """Labels that are Zipf distributed (exponent 1) over as many as there are requests."""
    weights = list(accumulate(1 / rank for rank in range(1, requests + 1)))
    ranks = random.Random(seed).choices(range(requests), cum_weights=weights, k=requests)
    return [f"run-{seed}-task-{rank}" for rank in ranks]


def on_two(loads: Sequence[int]) -> float:
    """The fraction of the requests that is on the two workers with most of them."""
    return sum(sorted(loads)[-2:]) / sum(loads)


@asynccontextmanager
async def held(
    ports: Sequence[int], workers: Sequence[int], labels: Sequence[str]
) -> AsyncIterator[list[list[int]]]:
    """A request with each of these labels, to these ports in turn; none ends before the block does.

    Yields what each worker held after each of them.
    """
    sent = exchange.requests(labels, exchange.HELD)
    async with AsyncExitStack() as stack:
        each = -(-len(labels) // len(ports))
        opened = [await stack.enter_async_context(connections(port, each)) for port in ports]
        answers = []
        seen = []
        for number, request in enumerate(sent):
            connection = opened[number % len(ports)][number // len(ports)]
            answers.append(asyncio.ensure_future(connection.send(request)))
            # One at a time, so that the gateway chooses in the order of the labels.
            loads = await asyncio.wait_for(got(workers[0], f"{HELD}{number + 1}"), _HELD_IN_S)
            seen.append(json.loads(loads)[: len(workers)])
        yield seen
        await got(workers[0], RELEASE)
        await asyncio.gather(*answers)


async def moved(before: Subject, after: Subject, labels: Sequence[str], joined: int) -> tuple[float, float]:
    """The fraction of labels that another worker serves after one joined, and of these those it serves."""
    pairs = list(zip(await placed(before, labels), await placed(after, labels), strict=True))
    elsewhere = [new for old, new in pairs if new != old]
    if not elsewhere:
        return 0.0, 1.0
    return len(elsewhere) / len(pairs), elsewhere.count(joined) / len(elsewhere)
