"""A policy of ours on SGLang's waiting queue: what SGLang's policy does with it in each scheduling pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from time import perf_counter
from typing import Any

from coresched_engine.counts import Counts

from coresched.core import AttachedOrder, Waiting
from coresched.core.prefix import LabelTiers
from coresched_sglang.admission import admitted_requests
from coresched_sglang.labels import Labels

_WAITING = "_coresched_waiting"
_RANK = "_coresched_rank"
_SMALLEST, _LARGEST = -(1 << 63), (1 << 63) - 1


def label_of(request: Any) -> str | None:
    """The label of a request that has been ordered; None also for one that has not."""
    waiting = getattr(request, _WAITING, None)
    return None if waiting is None else waiting.label


class Ordering(ABC):
    """The order of one scheduler's queue by ``policy``, whose name is ``name``.

    With ``by_priority`` the requests' priorities come first, the lowest first if ``lowest_first``.

    Nothing here depends on a clock: every rank of a model must find the same order. A request's queue-entry
    time t is therefore its number in the order of arrival, which all ranks see alike.
    """

    def __init__(
        self, name: str, policy: LabelTiers, *, by_priority: bool = False, lowest_first: bool = False
    ) -> None:
        self._name = name
        self._tiers = policy
        self._attached = AttachedOrder(
            policy,
            _WAITING,
            rank=_RANK if by_priority else None,
            highest_rank_first=not lowest_first,
        )
        self._by_priority = by_priority
        self._labels = Labels(name)
        self._entered = 0
        self._seconds = 0.0
        self._hits = self._misses = self._unlabelled = 0
        self._passed = False
        self._waiting: list[Any] = []
        self._waiting_count = 0

    def order(self, waiting_queue: list[Any], running_batch: Any = None) -> None:
        """Put the waiting queue into the policy's order, in place, before SGLang fills a batch from it."""
        began = perf_counter()
        self._order(waiting_queue, running_batch)
        # Not copied, which would read every request: SGLang makes a new list where it admits some.
        self._waiting, self._waiting_count = waiting_queue, len(waiting_queue)
        self._passed = True
        self._seconds += perf_counter() - began

    def admit(self, plan: Any, scheduler: Any = None) -> bool:
        """Count the requests that SGLang's ``plan`` admits; False if no `order` went before it.

        Raises RuntimeError where the queue itself has lost requests, so that the admitted cannot be told.
        """
        passed, self._passed = self._passed, False
        waiting, self._waiting = self._waiting, []
        if len(waiting) < self._waiting_count:
            raise RuntimeError(
                f"{self._name} cannot tell which requests this SGLang admits, for it removes them from the "
                "very list that was ordered; use another --schedule-policy"
            )
        self._waiting_count = 0
        if waiting:
            for request in admitted_requests(plan, waiting):
                self._count(label_of(request))
        return passed

    @abstractmethod
    def counts(self) -> Counts: ...

    def _order(self, waiting_queue: list[Any], running_batch: Any) -> None:
        self._attached.order(waiting_queue, self._enter)

    def _count(self, label: str | None) -> None:
        if label is None:
            self._unlabelled += 1
        elif label in self._tiers:
            self._hits += 1
        else:
            self._misses += 1

    def _enter(self, request: Any) -> Waiting:
        self._entered += 1
        if self._by_priority:
            setattr(request, _RANK, min(max(int(request.priority), _SMALLEST), _LARGEST))
        return Waiting(str(request.rid), self._labels.of(request), self._entered)

    def _common(self) -> dict[str, Any]:
        """The fields of `Counts`."""
        return {
            "passes": self._attached.passes,
            "changes": self._attached.changed,
            "seconds": self._seconds,
            "hits": self._hits,
            "misses": self._misses,
            "unlabelled": self._unlabelled,
            "refused_labels": self._labels.refused,
        }
