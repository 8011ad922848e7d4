"""RP on vLLM's waiting queue: what a scheduler of ours does in each of its passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

from coresched_engine.counts import PrefixCounts

from coresched.core import AttachedOrder, RoutingPrefixPolicy, Waiting
from coresched_vllm.labels import Labels
from coresched_vllm.names import ROUTING_PREFIX

_WAITING = "_coresched_waiting"


class RoutingPrefixOrder:
    """The routing-prefix order of one scheduler, and its label set of capacity ``label_capacity``.

    ``prefix_hit(request)`` is how many prompt tokens of it vLLM would take from its prefix cache now.

    Nothing here depends on a clock. A request's queue-entry time t is its number in the order of arrival,
    kept through preemptions, as is the hit that was recorded for it.
    """

    def __init__(self, label_capacity: int, prefix_hit: Callable[[Any], int]) -> None:
        self.policy = RoutingPrefixPolicy(label_capacity)
        self._attached = AttachedOrder(self.policy, _WAITING)
        self._prefix_hit = prefix_hit
        self._labels = Labels(ROUTING_PREFIX)
        self._entered = 0
        self._seconds = 0.0
        self._hits = self._misses = self._unlabelled = 0

    def order(self, requests: list[Any]) -> None:
        """Put waiting requests into the policy's order, in place."""
        if not requests:
            return
        began = perf_counter()
        self._attached.order(requests, self._enter, self._prefix_hit)
        self._seconds += perf_counter() - began

    def admitted(self, requests: Iterable[Any]) -> None:
        """Touch the labels of requests that have left the queue to run, in the order of their admission."""
        for request in requests:
            waiting = getattr(request, _WAITING, None)
            if waiting is None:  # it ran without a pass, from a queue that no policy orders
                waiting = self._enter(request)
                setattr(request, _WAITING, waiting)
            label = waiting.label
            if label is None:
                self._unlabelled += 1
            elif label in self.policy:
                self._hits += 1
            else:
                self._misses += 1
            self.policy.admitted(label)

    def counts(self) -> PrefixCounts:
        return PrefixCounts(
            passes=self._attached.passes,
            changes=self._attached.changed,
            seconds=self._seconds,
            hits=self._hits,
            misses=self._misses,
            unlabelled=self._unlabelled,
            refused_labels=self._labels.refused,
            queries=self._attached.queries,
        )

    def _enter(self, request: Any) -> Waiting:
        self._entered += 1
        return Waiting(str(request.request_id), self._labels.of(request), self._entered)
