"""RP on vLLM's waiting queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coresched.core import RoutingPrefixPolicy
from coresched_vllm.counts import VllmPrefixCounts
from coresched_vllm.names import ROUTING_PREFIX
from coresched_vllm.ordering import Ordering


class RoutingPrefixOrder(Ordering):
    """The routing-prefix order of one scheduler, and its label set of capacity ``label_capacity``.

    For ``prefix_hit`` see `Ordering`; it is asked at most once a request.
    """

    def __init__(self, label_capacity: int, prefix_hit: Callable[[Any], int]) -> None:
        self.policy = RoutingPrefixPolicy(label_capacity)
        super().__init__(ROUTING_PREFIX, self.policy, prefix_hit)

    def counts(self) -> VllmPrefixCounts:
        return VllmPrefixCounts(**self._common(), queries=self._attached.queries)

    def _count(self, label: str | None) -> None:
        super()._count(label)
        self.policy.admitted(label)
