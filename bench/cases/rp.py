"""RP: ordering a worker's waiting queue, and keeping the label set."""

from collections.abc import Callable, Iterator
from itertools import cycle, islice
from random import Random
from typing import Any, Protocol, TypeVar

from bench.cases import TWIN, Case, Scale
from bench.floor import Rank, one_sort
from bench.peers.prefix import Request, SortingPolicy
from bench.timing import Subject
from coresched.core import RoutingPrefixPolicy, Waiting
from coresched.core.reference import ReferencePrefixPolicy, ReferenceWaiting

LABEL_CAPACITY = 100
SIZES = {
    Scale.FULL: (10, 100, 1_000, 10_000, 100_000),
    Scale.QUICK: (10, 10_000),
    Scale.COUNTED: (1_000,),
}
"""Waiting requests."""

RequestT = TypeVar("RequestT")


class Policy(Protocol[RequestT]):
    def order(self, waiting: list[RequestT], prefix_hit: Callable[[RequestT], int]) -> list[RequestT]: ...
    def admitted(self, label: str) -> None: ...


def rp_cases(scale: Scale) -> Iterator[Case]:
    sizes = SIZES[scale]
    for size in sizes:
        yield _case("rp order steady", size, capacity_of(size), order_steady, size, sort_of(size))
    for size in sizes:
        yield _case(
            "rp order label moved", size, capacity_of(size), order_after_a_label_moved, size, sort_of(size)
        )
    yield _case("rp admitted touch", LABEL_CAPACITY, LABEL_CAPACITY, admit, LABEL_CAPACITY, {})
    yield _case("rp admitted enter", LABEL_CAPACITY, LABEL_CAPACITY, admit, 2 * LABEL_CAPACITY, {})


def capacity_of(size: int) -> int:
    """C_A beside so many waiting: that of a worker, or half of a queue that is shorter."""
    return min(size // 2, LABEL_CAPACITY)


def sort_of(size: int) -> dict[str, Subject]:
    """One comparison sort of the requests' keys, from the order of arrival."""
    waiting, hits, labels = queue(Request, size)
    warm = set(labels[: capacity_of(size)])
    return one_sort([Rank(-hits[one] if one.label in warm else 1, one.queued_at) for one in waiting])


def _case(
    name: str,
    n: int,
    capacity: int,
    subject_of: Callable[[Any, Callable[..., Any], int], Subject],
    argument: int,
    floor: dict[str, Subject],
) -> Case:
    return Case(
        name,
        n,
        subject_of(RoutingPrefixPolicy(capacity), Waiting, argument),
        {
            TWIN: subject_of(ReferencePrefixPolicy(capacity), ReferenceWaiting, argument),
            "python-sort": subject_of(SortingPolicy(capacity), Request, argument),
            **floor,
        },
    )


def order_steady(
    policy: Policy[RequestT], request: Callable[[str, str, float], RequestT], size: int
) -> Subject:
    """Pass after pass over a queue that nothing entered or left, some of its labels in the label set."""
    waiting, hits, labels = queue(request, size)
    for label in labels[: capacity_of(size)]:
        policy.admitted(label)
    order, prefix_hit = policy.order, hit_in(hits)
    ordered = order(waiting, prefix_hit)

    def subject(operations: int) -> None:
        nonlocal ordered
        for _ in range(operations):
            ordered = order(ordered, prefix_hit)

    return subject


def order_after_a_label_moved(
    policy: Policy[RequestT], request: Callable[[str, str, float], RequestT], size: int
) -> Subject:
    """Before each pass a waiting label enters the label set and the one touched longest ago leaves it."""
    waiting, hits, labels = queue(request, size)
    order, admitted, prefix_hit = policy.order, policy.admitted, hit_in(hits)
    capacity = capacity_of(size)
    moving = labels[: 2 * capacity]
    ordered = waiting
    for half in (moving[:capacity], moving[capacity:]):  # so that each was asked its one prefix hit
        for label in half:
            admitted(label)
        ordered = order(ordered, prefix_hit)
    entering = cycle(moving)

    def subject(operations: int) -> None:
        nonlocal ordered
        for label in islice(entering, operations):
            admitted(label)
            ordered = order(ordered, prefix_hit)

    return subject


def admit(policy: Policy[Any], _request: object, labels: int) -> Subject:
    """Labels in turn: as many as the set holds are touched only, twice as many enter and evict each time."""
    turns = cycle([f"task-{number:06d}" for number in range(labels)])
    admitted = policy.admitted

    def subject(operations: int) -> None:
        for label in islice(turns, operations):
            admitted(label)

    subject(labels)
    return subject


def queue(
    request: Callable[[str, str, float], RequestT], size: int
) -> tuple[list[RequestT], dict[RequestT, int], list[str]]:
    """Requests in order of arrival, what the cache holds of their prompts, and their labels at random."""
    rng = Random(size)
    labels = [f"task-{number:06d}" for number in range(size)]
    waiting = [request(f"request-{number}", label, 0.25 * number) for number, label in enumerate(labels)]
    hits = {one: rng.randrange(64, 32_768) for one in waiting}
    rng.shuffle(labels)
    return waiting, hits, labels


def hit_in(hits: dict[RequestT, int]) -> Callable[[RequestT], int]:
    return hits.__getitem__
