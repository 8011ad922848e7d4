"""A policy of ours on vLLM's waiting queue: what a scheduler of ours asks of it in each of its passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any

from coresched_engine.ordering import WAITING, CountedOrder

from coresched.core import AttachedOrder, Waiting
from coresched.core.prefix import LabelTiers
from coresched_vllm.labels import Labels


class Ordering(CountedOrder):
    """The order of one scheduler's queue by ``policy``, which ``--scheduler-cls`` takes by ``name``.

    ``prefix_hit(request)`` is how many prompt tokens of it vLLM would take from its prefix cache now; None
    where the policy asks for none.

    A policy that must hear of them overrides `finished`, `passed` and `cache_emptied`.

    A request's queue-entry time t is kept through preemptions, as is the hit that was recorded for it.
    """

    def __init__(self, name: str, policy: LabelTiers, prefix_hit: Callable[[Any], int] | None = None) -> None:
        super().__init__(policy, AttachedOrder(policy, WAITING), Labels(name))
        self._prefix_hit = prefix_hit
        self.states_demoted = 0
        """Blocks of superseded states that were put up for eviction."""
        self._resumed = 0

    def finished(self, request_ids: Iterable[str]) -> None:
        """Before `order`: requests that have finished since the last pass."""

    def order(self, requests: list[Any]) -> None:
        """Put waiting requests into the policy's order, in place."""
        if not requests:
            return
        began = perf_counter()
        self._attached.order(requests, self._enter, self._prefix_hit)
        self._seconds += perf_counter() - began

    def held_back(self, preempted: Sequence[Any], ordered: Sequence[Any], running: Sequence[Any]) -> int:
        """How many of ``ordered``, from its end, must not run now; ``preempted`` go before them."""
        return 0

    def admitted(self, requests: Iterable[Any]) -> None:
        """Count requests that have left the queue to run, in the order of their admission."""
        for request in requests:
            waiting = getattr(request, WAITING, None)
            if waiting is None:  # it ran without a pass, from a queue that no policy orders
                waiting = self._enter(request)
                setattr(request, WAITING, waiting)
            self._count(waiting.label)
            self._resumed += request.num_preemptions > 0

    def passed(self, running: Iterable[Any], admitted: Iterable[Any], output: Any) -> None:
        """After a pass of vLLM with this ``output``, a SchedulerOutput."""

    def cache_emptied(self) -> None:
        """vLLM's prefix cache may have been reset."""

    def _enter(self, request: Any) -> Waiting:
        self._entered += 1
        return Waiting(str(request.request_id), self._labels.of(request), self._entered)

    def _common(self) -> dict[str, Any]:
        """The fields that the counts of all policies have."""
        return super()._common() | {"states_demoted": self.states_demoted, "resumed": self._resumed}
