"""vLLM's schedulers with this adapter's policies. Only vLLM can load this module."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.request_queue import RequestQueue
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from coresched_vllm.arguments import check
from coresched_vllm.compatibility import TESTED_VERSIONS, is_tested, vllm_version
from coresched_vllm.configuration import label_capacity_of
from coresched_vllm.metrics import publisher_of
from coresched_vllm.names import ROUTING_PREFIX
from coresched_vllm.queue import WaitingQueue
from coresched_vllm.routing_prefix import RoutingPrefixOrder

if TYPE_CHECKING:
    _Mixed = Scheduler
else:
    _Mixed = object

logger = logging.getLogger(__name__)

RequestQueue.register(WaitingQueue)


def _log_with_vllm() -> None:
    """Our lines go where vLLM's go, which has handlers for its own loggers only."""
    theirs = logging.getLogger("vllm")
    for name in ("coresched_engine", "coresched_vllm"):
        ours = logging.getLogger(name)
        for handler in theirs.handlers:
            ours.addHandler(handler)
        ours.setLevel(theirs.level)
        ours.propagate = theirs.propagate


_log_with_vllm()


class RoutingPrefix(_Mixed):  # type: ignore[misc,valid-type]  # untyped where vLLM is not installed
    """vLLM's scheduler, whose waiting queue is in routing-prefix order before each pass.

    Nothing else of a pass is different. Made by this name it is of the class for the configuration's
    ``async_scheduling``: vLLM does not tell the two apart for a class that is named to it, and under
    asynchronous scheduling vLLM's synchronous scheduler runs every second step empty.
    """

    def __new__(cls, vllm_config: Any, *_args: Any, **_kwargs: Any) -> RoutingPrefix:
        if cls is RoutingPrefix:
            overlapped = vllm_config.scheduler_config.async_scheduling
            cls = RoutingPrefixAsyncScheduler if overlapped else RoutingPrefixScheduler
        made: RoutingPrefix = object.__new__(cls)
        return made

    def __init__(self, vllm_config: Any, kv_cache_config: Any, *args: Any, **kwargs: Any) -> None:
        check(vllm_config)
        super().__init__(vllm_config, kv_cache_config, *args, **kwargs)
        self.ordering: RoutingPrefixOrder | None = None
        """None without a prefix cache."""
        if not self.kv_cache_manager.enable_caching:
            logger.warning(
                "--scheduler-cls %s: the prefix cache is off, so there is nothing to order by; this engine "
                "is first come, first served",
                ROUTING_PREFIX,
            )
            return
        self.waiting = WaitingQueue(_is_preempted)
        self.ordering = self._make_ordering(vllm_config, kv_cache_config)
        self._publisher = publisher_of(vllm_config, self.ordering.counts()) if self.log_stats else None

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        if self.ordering is None:
            return super().schedule(*args, **kwargs)
        has_work = bool(self.waiting.ordered)
        self.ordering.order(self.waiting.ordered)
        running = len(self.running)
        output = super().schedule(*args, **kwargs)
        # vLLM admits at the end of `running`, and nothing in a pass that preempts, which shortens it.
        admitted = self.running[running:]
        self.ordering.admitted(admitted)
        if self._publisher is not None and (has_work or admitted):
            self._publisher.publish(self.ordering.counts())
        return output

    def _make_ordering(self, vllm_config: Any, kv_cache_config: Any) -> RoutingPrefixOrder:
        capacity = label_capacity_of(os.environ, vllm_config, kv_cache_config)
        version = vllm_version()
        logger.info(
            "--scheduler-cls %s: label capacity C_A = %d, from %s; vLLM %s (%s)",
            ROUTING_PREFIX,
            capacity.value,
            capacity.source,
            version,
            "tested" if is_tested(version) else f"not tested; {', '.join(TESTED_VERSIONS)} are",
        )
        most_running = vllm_config.scheduler_config.max_num_seqs
        if capacity.value <= most_running:
            logger.warning(
                "--scheduler-cls %s: label capacity C_A = %d is not above max_num_seqs = %d, so when that "
                "many requests run, their labels push out those of all idle trajectories and this engine "
                "is first come, first served; set CORESCHED_LABEL_CAPACITY higher, or --max-num-seqs lower",
                ROUTING_PREFIX,
                capacity.value,
                most_running,
            )
        return RoutingPrefixOrder(capacity.value, self._prefix_hit)

    def _prefix_hit(self, request: Any) -> int:
        """Cached prompt tokens, as vLLM will count them at admission; nothing is touched, counted or told."""
        if request.skip_reading_prefix_cache:
            return 0
        # Not KVCacheManager.get_computed_blocks, which may send events of what it finds.
        found = self.kv_cache_manager.coordinator.find_longest_cache_hit(
            request.block_hashes, request.num_tokens - 1
        )
        return int(found[1])


class RoutingPrefixScheduler(RoutingPrefix, Scheduler):  # type: ignore[misc]
    """For ``async_scheduling=False``."""


class RoutingPrefixAsyncScheduler(RoutingPrefix, AsyncScheduler):  # type: ignore[misc]
    """For ``async_scheduling=True``."""


def _is_preempted(request: Any) -> bool:
    return bool(request.status == RequestStatus.PREEMPTED)
