"""Routing-residency on SGLang's waiting queue: cached trajectories first, and the guard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from coresched_engine.counts import ResidencyCounts

from coresched.core import ResidencyPolicy, TurnGaps, Waiting
from coresched_sglang.guard import Guard
from coresched_sglang.names import ROUTING_RESIDENCY
from coresched_sglang.ordering import Ordering
from coresched_sglang.residency import Residency


@dataclass(frozen=True)
class SglangResidencyCounts(ResidencyCounts):
    states_evicted: int
    """States that were evicted because no live trajectory needed them."""


class RoutingResidency(Ordering):
    """The routing-residency order of one scheduler, by what ``tree_cache``, an UnifiedRadixCache, holds.

    ``guarded(adder_class, holds_back)`` derives a PrefillAdder that admits no request which is held back. The
    clock of the gaps is the scheduler's count of forwards, which all ranks see alike. For the priorities see
    `Ordering`.
    """

    def __init__(
        self,
        tree_cache: Any,
        guarded: Callable[[Any, Callable[[Any, Any], bool]], Any],
        *,
        by_priority: bool = False,
        lowest_first: bool = False,
    ) -> None:
        self._policy = ResidencyPolicy()
        super().__init__(ROUTING_RESIDENCY, self._policy, by_priority=by_priority, lowest_first=lowest_first)
        self._gaps = TurnGaps()
        self._residency = Residency(tree_cache, self._policy, self._turn_ended)
        self._guard = Guard(tree_cache, self._residency, self._policy, self._gaps, by_priority)
        self._guarded = guarded
        self._scheduler: Any = None
        self._now = 0

    def admit(self, plan: Any, scheduler: Any = None) -> bool:
        if self._scheduler is None:  # the first time is before the first request
            self._scheduler = scheduler
            adder_class = self._guarded(scheduler.get_prefill_adder_class(), self._guard.holds_back)
            scheduler.get_prefill_adder_class = lambda: adder_class
        self._now = scheduler.forward_ct
        return super().admit(plan, scheduler)

    def counts(self) -> SglangResidencyCounts:
        return SglangResidencyCounts(
            **self._common(),
            lost=self._residency.lost,
            held_back=self._guard.passes_held_back,
            states_evicted=self._guard.states_evicted,
        )

    def _order(self, waiting_queue: list[Any], running_batch: Any) -> None:
        self._residency.refresh()
        self._attached.order(waiting_queue, self._enter)
        scheduler = self._scheduler
        if scheduler is None:
            return
        running = list(running_batch.reqs)
        if scheduler.chunked_req is not None:
            running.append(scheduler.chunked_req)
        places = max(0, scheduler.max_running_requests - len(running))
        version = (self._entered, self._admissions, len(waiting_queue))
        self._guard.before_pass(waiting_queue, running, places, self._now, version)

    def _enter(self, request: Any) -> Waiting:
        waiting = super()._enter(request)
        if waiting.label is not None:
            self._gaps.began(waiting.label, self._now)
        return waiting

    def _turn_ended(self, label: str) -> None:
        self._gaps.ended(label, self._now)
