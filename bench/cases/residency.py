"""Routing-residency: ordering by what the cache holds, and the gaps that tell its guard who is live."""

from collections.abc import Callable, Iterator
from itertools import cycle, islice
from random import Random
from typing import Any, Protocol, TypeVar

from bench.cases import TWIN, Case, Scale
from bench.cases.rp import SIZES, capacity_of, queue
from bench.floor import Rank, one_sort
from bench.peers.prefix import Request
from bench.timing import Subject
from coresched.core import ResidencyPolicy, TurnGaps, Waiting
from coresched.core.reference import ReferenceResidencyPolicy, ReferenceTurnGaps, ReferenceWaiting

GAPS = {Scale.FULL: (100, 1_000, 4_000), Scale.QUICK: (100,), Scale.COUNTED: (1_000,)}
"""Trajectories that are in a gap at a time; all fit into the window of 4,096."""

RequestT = TypeVar("RequestT")


class Policy(Protocol[RequestT]):
    def order(self, waiting: list[RequestT]) -> list[RequestT]: ...
    def resident(self, label: str) -> None: ...
    def evicted(self, label: str) -> None: ...


class Gaps(Protocol):
    def ended(self, label: str, now: int) -> None: ...
    def began(self, label: str, now: int) -> None: ...
    def expected(self, label: str, now: int) -> bool: ...


def residency_cases(scale: Scale) -> Iterator[Case]:
    for name, subject_of in (("steady", steady), ("label moved", label_moved)):
        for size in SIZES[scale]:
            yield Case(
                f"residency {name}",
                size,
                subject_of(ResidencyPolicy(), Waiting, size),
                {
                    TWIN: subject_of(ReferenceResidencyPolicy(), ReferenceWaiting, size),
                    **_sort_of(size),
                },
            )
    for trajectories in GAPS[scale]:
        yield Case(
            "gaps turn",
            trajectories,
            turn_again(TurnGaps(), trajectories),
            {TWIN: turn_again(ReferenceTurnGaps(), trajectories)},
        )


def _sort_of(size: int) -> dict[str, Subject]:
    waiting, _, labels = queue(Request, size)
    warm = set(labels[: capacity_of(size)])
    return one_sort([Rank(0 if one.label in warm else 1, one.queued_at) for one in waiting])


def steady(policy: Policy[Any], request: Callable[[str, str, float], Any], size: int) -> Subject:
    """Pass after pass over a queue that nothing entered or left, the cache as it was."""
    waiting, _, labels = queue(request, size)
    for label in labels[: capacity_of(size)]:
        policy.resident(label)
    order = policy.order
    ordered = order(waiting)

    def subject(operations: int) -> None:
        nonlocal ordered
        for _ in range(operations):
            ordered = order(ordered)

    return subject


def label_moved(policy: Policy[Any], request: Callable[[str, str, float], Any], size: int) -> Subject:
    """Before each pass the cache takes one waiting trajectory and gives up the one it took longest ago."""
    waiting, _, labels = queue(request, size)
    capacity = capacity_of(size)
    moving = labels[: 2 * capacity]
    for label in moving[:capacity]:
        policy.resident(label)
    order, resident, evicted = policy.order, policy.resident, policy.evicted
    ordered = order(waiting)
    pairs = cycle([(moving[place], moving[place - capacity]) for place in range(-capacity, capacity)])

    def subject(operations: int) -> None:
        nonlocal ordered
        for entering, leaving in islice(pairs, operations):
            evicted(leaving)
            resident(entering)
            ordered = order(ordered)

    return subject


def turn_again(gaps: Gaps, trajectories: int) -> Subject:
    """The guard asks for a trajectory that is idle; its turn waits, and has ended a step later."""
    labels = [f"task-{number:06d}" for number in range(trajectories)]
    rng = Random(trajectories)
    turns = cycle([rng.choice(labels) for _ in range(10_007)])
    now = 0
    ended, began, expected = gaps.ended, gaps.began, gaps.expected
    for label in labels:
        ended(label, now)

    def subject(operations: int) -> None:
        nonlocal now
        for label in islice(turns, operations):
            expected(label, now)
            began(label, now)
            now += 1
            ended(label, now)

    subject(trajectories)
    return subject
