"""A pass over an engine's own requests after some have come: what grows with the queue, and what with them.

This is what the plugins call (`AttachedOrder`): the list is the engine's, and is put in order in place.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Protocol

from bench.cases import TWIN, Case, Scale
from bench.cases.rp import LABEL_CAPACITY
from bench.peers.prefix import LabelSet
from bench.timing import Subject
from coresched.core import AttachedOrder, RoutingPrefixPolicy, Waiting
from coresched.core.reference import (
    ReferenceAttachedOrder,
    ReferencePrefixPolicy,
    ReferenceWaiting,
)

SIZES = {Scale.FULL: (1_000, 10_000, 100_000), Scale.QUICK: (1_000,), Scale.COUNTED: (1_000,)}
"""Waiting requests."""
NEW = (0, 1, 10, 100)
"""Requests that have come since the pass before."""


class EngineRequest:
    """An engine's request, as far as it is ordered: it takes attributes, and an engine's has many."""

    def __init__(self, label: str, arrived_at: float, cached: int) -> None:
        self.label = label
        self.arrived_at = arrived_at
        self.cached = cached


class EngineOrder(Protocol):
    def order(
        self, requests: list[Any], enter: Callable[[Any], Any], prefix_hit: Callable[[Any], int]
    ) -> bool: ...


class SortedRequests(LabelSet):
    """RP as one writes it into an engine: one sort with a key function, the hit kept on the request."""

    def order(
        self, requests: list[EngineRequest], _enter: object, prefix_hit: Callable[[EngineRequest], int]
    ) -> bool:
        labels = self._labels

        def key(request: Any) -> tuple[int, int, float]:
            if request.label not in labels:
                return 1, 0, request.arrived_at
            try:
                hit = request.hit
            except AttributeError:
                hit = request.hit = prefix_hit(request)
            return 0, -hit, request.arrived_at

        requests.sort(key=key)
        return True


def pass_cases(scale: Scale) -> Iterator[Case]:
    for new in NEW:
        for size in SIZES[scale]:
            yield Case(
                f"rp pass, {new} new",
                size,
                some_new(*_routing_prefix(RoutingPrefixPolicy, AttachedOrder), Waiting, size, new),
                {
                    TWIN: some_new(
                        *_routing_prefix(ReferencePrefixPolicy, ReferenceAttachedOrder),
                        ReferenceWaiting,
                        size,
                        new,
                    ),
                    "python-sort": some_new(*_sorted_requests(), None, size, new),
                },
            )


def _routing_prefix(policy: Callable[[int], Any], order: Callable[[Any, str], Any]) -> tuple[Any, Any]:
    made = policy(LABEL_CAPACITY)
    return order(made, "waiting"), made


def _sorted_requests() -> tuple[Any, Any]:
    made = SortedRequests(LABEL_CAPACITY)
    return made, made


def some_new(order: EngineOrder, policy: Any, waiting: Any, size: int, new: int) -> Subject:
    """Those that came before the last pass leave the list, as many others join it at its end, and one pass.

    What comes has a label of the label set and the shortest hits: it goes from the end of the list to the
    end of tier 0. The list stays as long as it was.
    """
    rng = Random(size)
    requests = [EngineRequest(f"task-{number:06d}", 0.25 * number, 0) for number in range(size - new)]
    rng.shuffle(requests)
    for request in requests[: LABEL_CAPACITY - new]:
        request.cached = rng.randrange(64, 32_768)
        policy.admitted(request.label)
    labels = [f"task-new-{number}" for number in range(new)]
    for label in labels:
        policy.admitted(label)
    requests.sort(key=lambda request: request.arrived_at)
    clock = float(size)
    first = LABEL_CAPACITY - new
    pass_ = order.order

    def enter(request: EngineRequest) -> Any:
        return waiting("", request.label, request.arrived_at)

    def prefix_hit(request: EngineRequest) -> int:
        return request.cached

    def come() -> None:
        nonlocal clock
        for label in labels:
            clock += 0.25
            requests.append(EngineRequest(label, clock, 1))

    def subject(operations: int) -> None:
        for _ in range(operations):
            del requests[first : first + new]
            come()
            pass_(requests, enter, prefix_hit)

    come()
    pass_(requests, enter, prefix_hit)
    return subject
