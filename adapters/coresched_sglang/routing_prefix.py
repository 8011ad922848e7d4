"""RP on SGLang's waiting queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coresched_engine.counts import PrefixCounts

from coresched.core import RoutingPrefixPolicy
from coresched_sglang.names import ROUTING_PREFIX
from coresched_sglang.ordering import Ordering


class RoutingPrefix(Ordering):
    """The routing-prefix order of one scheduler, and its label set of capacity ``label_capacity``.

    ``match(request)`` is SGLang's own match with its prefix cache, which sets the request's
    ``num_matched_prefix_tokens``. For the priorities see `Ordering`.
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
        super().__init__(ROUTING_PREFIX, self._policy, by_priority=by_priority, lowest_first=lowest_first)
        self._match = match

    def counts(self) -> PrefixCounts:
        return PrefixCounts(**self._common(), queries=self._attached.queries)

    def _order(self, waiting_queue: list[Any], running_batch: Any) -> None:
        self._attached.order(waiting_queue, self._enter, self._prefix_hit)

    def _count(self, label: str | None) -> None:
        super()._count(label)
        self._policy.admitted(label)

    def _prefix_hit(self, request: Any) -> int:
        self._match(request)
        return int(request.num_matched_prefix_tokens)
