"""CAAS: the environment queue at a steady length."""

import asyncio
import queue
from collections.abc import Callable, Hashable, Iterator
from itertools import cycle, islice
from random import Random
from typing import Any, Protocol

from bench.cases import TWIN, Case, Scale
from bench.floor import one_sift
from bench.peers import installed
from bench.peers.chain import HeapqQueue, LazyHeapqQueue, PriorityQueue, SortedListQueue
from bench.timing import Subject
from coresched.core import ChainAdvancingQueue
from coresched.core.reference import ReferenceChainQueue

BETWEEN_REQUESTS_S = 0.3
"""Seconds from one job to the next: a hundred to an arrival band."""


SIZES = {
    Scale.FULL: (1_000, 10_000, 100_000, 1_000_000),
    Scale.QUICK: (1_000, 10_000),
    Scale.COUNTED: (1_000,),
}
"""Waiting jobs."""


class JobQueue(Protocol):
    def push(self, job: Hashable, *, requested_at: float, turns: int, mean_inference_s: float) -> None: ...
    def pop(self) -> Any: ...


class DiscardingQueue(JobQueue, Protocol):
    def discard(self, job: Hashable) -> bool: ...


def caas_cases(scale: Scale) -> Iterator[Case]:
    sizes = SIZES[scale]
    for waiting in sizes:
        yield Case(
            "caas push+pop",
            waiting,
            push_and_pop(ChainAdvancingQueue(), waiting),
            {
                name: push_and_pop(make(), waiting)
                for name, make in {**discarding_peers(), **popping_peers()}.items()
            }
            | one_sift(waiting, stages()),
        )
    for waiting in sizes:
        yield Case(
            "caas discard+push",
            waiting,
            discard_and_push(ChainAdvancingQueue(), waiting),
            {name: discard_and_push(make(), waiting) for name, make in discarding_peers().items()},
        )


def discarding_peers() -> dict[str, Callable[[], DiscardingQueue]]:
    peers: dict[str, Callable[[], DiscardingQueue]] = {
        TWIN: ReferenceChainQueue,
        "heapq, lazy": LazyHeapqQueue,
    }
    if sortedcontainers := installed("sortedcontainers"):
        peers["sortedcontainers"] = lambda: SortedListQueue(sortedcontainers.SortedList())
    return peers


def popping_peers() -> dict[str, Callable[[], JobQueue]]:
    return {
        "heapq": HeapqQueue,
        "queue.PriorityQueue": lambda: PriorityQueue(queue.PriorityQueue()),
        "asyncio.PriorityQueue": lambda: PriorityQueue(asyncio.PriorityQueue()),
    }


def push_and_pop(jobs: JobQueue, waiting: int) -> Subject:
    """The next job gets a slot, and its trajectory's next job joins."""
    draws = stages()
    now = 0.0
    push, pop = jobs.push, jobs.pop
    for number, (turns, mean_s) in enumerate(islice(draws, waiting)):
        now += BETWEEN_REQUESTS_S
        push(f"job-{number}", requested_at=now, turns=turns, mean_inference_s=mean_s)

    def subject(operations: int) -> None:
        nonlocal now
        for turns, mean_s in islice(draws, operations):
            now += BETWEEN_REQUESTS_S
            push(pop(), requested_at=now, turns=turns, mean_inference_s=mean_s)

    return subject


def discard_and_push(jobs: DiscardingQueue, waiting: int) -> Subject:
    """A job anywhere in the queue is withdrawn, as when its client is gone, and another one joins."""
    draws = stages()
    now = 0.0
    push, discard = jobs.push, jobs.discard
    names = [f"job-{number}" for number in range(waiting)]
    for job, (turns, mean_s) in zip(names, draws, strict=False):
        now += BETWEEN_REQUESTS_S
        push(job, requested_at=now, turns=turns, mean_inference_s=mean_s)
    Random(1).shuffle(names)
    withdrawn = cycle(names)

    def subject(operations: int) -> None:
        nonlocal now
        for turns, mean_s in islice(draws, operations):
            now += BETWEEN_REQUESTS_S
            job = next(withdrawn)
            discard(job)
            push(job, requested_at=now, turns=turns, mean_inference_s=mean_s)

    return subject


def stages() -> Iterator[tuple[int, float]]:
    """Completed turns and mean inference seconds of the trajectories, over and over."""
    rng = Random(0)
    return cycle([(rng.randint(1, 60), rng.uniform(0.5, 12.0)) for _ in range(1009)])
