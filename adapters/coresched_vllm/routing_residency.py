"""Routing-residency on vLLM's waiting queue: cached trajectories first, and the guard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from coresched_engine.ordering import label_of

from coresched.core import ResidencyPolicy, TurnGaps, Waiting
from coresched_vllm.blocks import Groups
from coresched_vllm.counts import VllmResidencyCounts
from coresched_vllm.guard import Guard
from coresched_vllm.names import ROUTING_RESIDENCY
from coresched_vllm.ordering import Ordering
from coresched_vllm.residency import Residency


class RoutingResidencyOrder(Ordering):
    """The routing-residency order of one scheduler, by what the pool of ``groups`` holds.

    For the other arguments see `Guard`, and for ``block_hash`` `Residency`. The clock of the gaps between
    turns is the count of passes that computed something.
    """

    def __init__(
        self,
        groups: Groups,
        most_running: int,
        tokens_a_pass: int,
        prefix_hit: Callable[[Any], int],
        block_hash: Callable[[Any], Any],
    ) -> None:
        self.policy = ResidencyPolicy()
        super().__init__(ROUTING_RESIDENCY, self.policy)
        self._gaps = TurnGaps()
        self.residency = Residency(groups, self.policy, block_hash)
        self._guard = Guard(
            groups, self.residency, self.policy, self._gaps, most_running, tokens_a_pass, prefix_hit
        )
        self._now = 0
        self._labels_of: dict[str, str] = {}

    def finished(self, request_ids: Iterable[str]) -> None:
        for name in request_ids:
            if (label := self._labels_of.pop(name, None)) is not None:
                self.residency.forget(name, label)
                self._gaps.ended(label, self._now)

    def order(self, requests: list[Any]) -> None:
        self.residency.refresh()
        super().order(requests)

    def held_back(self, preempted: Sequence[Any], ordered: Sequence[Any], running: Sequence[Any]) -> int:
        version = (self._entered, self._admissions, len(ordered), len(running))
        return self._guard.held_back(preempted, ordered, running, self._now, version)

    def passed(self, running: Iterable[Any], admitted: Iterable[Any], output: Any) -> None:
        scheduled: dict[str, int] = output.num_scheduled_tokens
        for request in admitted:
            if (label := label_of(request)) is not None:
                name = request.request_id
                self._labels_of[name] = label
                self.residency.admitted(request, label, request.num_computed_tokens - scheduled.get(name, 0))
        for request in running:
            if request.request_id in self._labels_of:
                self.residency.observe(request, self._labels_of[request.request_id])
        if scheduled:
            self._now += 1

    def cache_emptied(self) -> None:
        self.residency.look_at_all()
        self.residency.refresh()

    def counts(self) -> VllmResidencyCounts:
        return VllmResidencyCounts(
            **self._common(),
            lost=self.residency.lost,
            held_back=self._guard.passes_held_back,
            moved_back=self._guard.moved_back,
        )

    def _enter(self, request: Any) -> Waiting:
        waiting = super()._enter(request)
        if waiting.label is not None:
            self._gaps.began(waiting.label, self._now)
        return waiting
