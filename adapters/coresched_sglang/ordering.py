"""A policy of ours on SGLang's waiting queue: what SGLang's policy does with it in each scheduling pass."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from coresched_engine.ordering import WAITING, CountedOrder, label_of

from coresched.core import AttachedOrder, Waiting
from coresched.core.prefix import LabelTiers
from coresched_sglang.admission import admitted_requests
from coresched_sglang.labels import Labels

_RANK = "_coresched_rank"
_SMALLEST, _LARGEST = -(1 << 63), (1 << 63) - 1


class Ordering(CountedOrder):
    """The order of one scheduler's queue by ``policy``, whose name is ``name``.

    With ``by_priority`` the requests' priorities come first, the lowest first if ``lowest_first``.
    """

    def __init__(
        self, name: str, policy: LabelTiers, *, by_priority: bool = False, lowest_first: bool = False
    ) -> None:
        rank = _RANK if by_priority else None
        super().__init__(
            policy,
            AttachedOrder(policy, WAITING, rank=rank, highest_rank_first=not lowest_first),
            Labels(name),
        )
        self._name = name
        self._by_priority = by_priority
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

    def _order(self, waiting_queue: list[Any], running_batch: Any) -> None:
        self._attached.order(waiting_queue, self._enter)

    def _enter(self, request: Any) -> Waiting:
        self._entered += 1
        if self._by_priority:
            setattr(request, _RANK, min(max(int(request.priority), _SMALLEST), _LARGEST))
        return Waiting(str(request.rid), self._labels.of(request), self._entered)
