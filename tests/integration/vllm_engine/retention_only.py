"""vLLM's first come, first served with one state per trajectory: the retention without a policy's order."""

from typing import Any

from coresched_vllm.blocks import Groups
from coresched_vllm.counts import VllmPrefixCounts
from coresched_vllm.ordering import Ordering
from coresched_vllm.scheduler import OrderedScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from coresched.core import ResidencyPolicy


class ArrivalOrder(Ordering):
    def __init__(self) -> None:
        super().__init__("RetentionOnly", ResidencyPolicy())  # of no label, so it changes no order

    def counts(self) -> VllmPrefixCounts:
        return VllmPrefixCounts(**self._common(), queries=0)


class RetentionOnly(OrderedScheduler, Scheduler):  # type: ignore[misc]
    def _make_ordering(self, vllm_config: Any, kv_cache_config: Any, groups: Groups) -> Ordering:
        return ArrivalOrder()
