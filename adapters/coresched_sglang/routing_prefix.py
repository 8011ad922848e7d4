"""RP on SGLang's waiting queue: what SGLang's policy does with it in each scheduling pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from coresched.core import AttachedOrder, RoutingPrefixPolicy, Waiting
from coresched_sglang.admission import admitted_requests
from coresched_sglang.labels import Labels

_WAITING = "_coresched_waiting"
_RANK = "_coresched_rank"
_SMALLEST, _LARGEST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True)
class PrefixCounts:
    """What the policy did since it was made; every number only grows."""

    passes: int
    queries: int
    """Requests whose prefix hit was asked for."""
    changes: int
    """Passes that changed the order."""
    seconds: float
    """Time taken by the passes, with the queries."""
    hits: int
    """Admitted requests whose label was in the label set."""
    misses: int
    """Admitted requests whose label was not."""
    unlabelled: int
    """Admitted requests without a label."""
    refused_labels: int
    """Requests whose label could not be one."""


class RoutingPrefix:
    """The routing-prefix order of one scheduler, and its label set of capacity ``label_capacity``.

    ``match(request)`` is SGLang's own match with its prefix cache, which sets the request's
    ``num_matched_prefix_tokens``. With ``by_priority`` the requests' priorities come first, the lowest first
    if ``lowest_first``.

    Nothing here depends on a clock: every rank of a model must find the same order. A request's queue-entry
    time t is therefore its number in the order of arrival, which all ranks see alike.
    """

    def __init__(
        self,
        label_capacity: int,
        match: Callable[[Any], object],
        *,
        by_priority: bool = False,
        lowest_first: bool = False,
    ) -> None:
        self._policy = RoutingPrefixPolicy(label_capacity)
        self._attached = AttachedOrder(
            self._policy,
            _WAITING,
            rank=_RANK if by_priority else None,
            highest_rank_first=not lowest_first,
        )
        self._match = match
        self._by_priority = by_priority
        self._labels = Labels()
        self._entered = 0
        self._seconds = 0.0
        self._hits = self._misses = self._unlabelled = 0
        self._passed = False
        self._waiting: list[Any] = []
        self._waiting_count = 0

    def order(self, waiting_queue: list[Any]) -> None:
        """Put the waiting queue into RP order, in place, before SGLang fills a batch from it."""
        began = perf_counter()
        self._attached.order(waiting_queue, self._enter, self._prefix_hit)
        # Not copied, which would read every request: SGLang makes a new list where it admits some.
        self._waiting, self._waiting_count = waiting_queue, len(waiting_queue)
        self._passed = True
        self._seconds += perf_counter() - began

    def admit(self, plan: Any) -> bool:
        """Touch the labels of the requests that SGLang's ``plan`` admits; False if no `order` went before it.

        Raises RuntimeError where the queue itself has lost requests, so that the admitted cannot be told.
        """
        passed, self._passed = self._passed, False
        waiting, self._waiting = self._waiting, []
        if len(waiting) < self._waiting_count:
            raise RuntimeError(
                "routing-prefix cannot tell which requests this SGLang admits: it removes them from the list that "
                "it waits with; use another --schedule-policy"
            )
        self._waiting_count = 0
        if waiting:
            for request in admitted_requests(plan, waiting):
                self._touch(getattr(request, _WAITING).label)
        return passed

    def counts(self) -> PrefixCounts:
        return PrefixCounts(
            passes=self._attached.passes,
            queries=self._attached.queries,
            changes=self._attached.changed,
            seconds=self._seconds,
            hits=self._hits,
            misses=self._misses,
            unlabelled=self._unlabelled,
            refused_labels=self._labels.refused,
        )

    def _touch(self, label: str | None) -> None:
        if label is None:
            self._unlabelled += 1
        elif label in self._policy:
            self._hits += 1
        else:
            self._misses += 1
        self._policy.admitted(label)

    def _enter(self, request: Any) -> Waiting:
        self._entered += 1
        if self._by_priority:
            setattr(request, _RANK, min(max(int(request.priority), _SMALLEST), _LARGEST))
        return Waiting(str(request.rid), self._labels.of(request), self._entered)

    def _prefix_hit(self, request: Any) -> int:
        self._match(request)
        return int(request.num_matched_prefix_tokens)
