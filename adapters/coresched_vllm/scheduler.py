"""vLLM's schedulers with this adapter's policies. Only vLLM can load this module."""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from coresched_engine.ordering import label_of
from vllm.v1.core.kv_cache_utils import get_block_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.request_queue import RequestQueue
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from coresched.errors import InputError
from coresched_vllm.arguments import NO_CACHE, check
from coresched_vllm.blocks import Groups
from coresched_vllm.compatibility import TESTED_VERSIONS, is_tested, vllm_version
from coresched_vllm.configuration import label_capacity_of, one_state_per_trajectory
from coresched_vllm.metrics import publisher_of
from coresched_vllm.names import ROUTING_PREFIX, ROUTING_RESIDENCY, policy_name
from coresched_vllm.ordering import Ordering
from coresched_vllm.queue import WaitingQueue
from coresched_vllm.retention import StateRetention
from coresched_vllm.routing_prefix import RoutingPrefixOrder
from coresched_vllm.routing_residency import RoutingResidencyOrder

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


class OrderedScheduler(_Mixed):  # type: ignore[misc,valid-type]  # untyped where vLLM is not installed
    """vLLM's scheduler, whose waiting queue is in a policy's order before each pass.

    Beside the order, and who is held back, only the place of superseded states in the pool's free queue is
    different. Made by a policy's own name it is of the class for the configuration's ``async_scheduling``:
    vLLM does not tell the two apart for a class that is named to it, and under asynchronous scheduling vLLM's
    synchronous scheduler runs every second step empty.
    """

    _by_overlap: tuple[type[OrderedScheduler], type[OrderedScheduler]]
    """Of a policy: its classes for ``async_scheduling`` False and True."""

    def __new__(cls, vllm_config: Any, *_args: Any, **_kwargs: Any) -> OrderedScheduler:
        if cls in _POLICIES:
            cls = cls._by_overlap[bool(vllm_config.scheduler_config.async_scheduling)]
        made: OrderedScheduler = object.__new__(cls)
        return made

    def __init__(self, vllm_config: Any, kv_cache_config: Any, *args: Any, **kwargs: Any) -> None:
        check(vllm_config, type(self))
        super().__init__(vllm_config, kv_cache_config, *args, **kwargs)
        self.ordering: Ordering | None = None
        """None without a prefix cache."""
        self.retention: StateRetention | None = None
        """None where each state is left to vLLM."""
        name = policy_name(type(self))
        if not self.kv_cache_manager.enable_caching:
            if name == ROUTING_RESIDENCY:
                raise InputError(f"--scheduler-cls {name} {NO_CACHE}")
            logger.warning(
                "--scheduler-cls %s: the prefix cache is off, so there is nothing to order by; this engine "
                "is first come, first served",
                name,
            )
            return
        self.waiting = WaitingQueue(_is_preempted)
        groups = Groups(self.kv_cache_manager)
        self.ordering = self._make_ordering(vllm_config, kv_cache_config, groups)
        if (
            one_state_per_trajectory(os.environ, vllm_config.additional_config)
            and groups.keeps_aligned_states
        ):
            self.retention = StateRetention(groups, get_block_hash, groups.pool.hash_block_size)
        self._publisher = publisher_of(vllm_config, self.ordering.counts()) if self.log_stats else None

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        ordering, waiting = self.ordering, self.waiting
        if ordering is None:
            return super().schedule(*args, **kwargs)
        has_work = bool(waiting)
        ordering.finished(self.finished_req_ids)
        if self.retention is not None:
            self.retention.forget(self.finished_req_ids)
        ordering.order(waiting.ordered)
        if self.retention is not None:  # requests that have just come have their labels now
            self.retention.demote(
                lambda: {label for each in waiting if (label := label_of(each)) is not None}
            )
            ordering.states_demoted = self.retention.demoted
        running = len(self.running)
        with waiting.holding_back(ordering.held_back(waiting.preempted, waiting.ordered, self.running)):
            output = super().schedule(*args, **kwargs)
        # vLLM admits at the end of `running`, and nothing in a pass that preempts, which shortens it.
        admitted = self.running[running:]
        ordering.admitted(admitted)
        ordering.passed(self.running, admitted, output)
        if self.retention is not None:
            self.retention.observe(self.running, admitted, output.num_scheduled_tokens, label_of)
        if self._publisher is not None and (has_work or admitted):
            self._publisher.publish(ordering.counts())
        return output

    def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> Any:
        emptied = super().reset_prefix_cache(*args, **kwargs)
        if self.ordering is not None:
            self.ordering.cache_emptied()
        return emptied

    @abstractmethod
    def _make_ordering(self, vllm_config: Any, kv_cache_config: Any, groups: Groups) -> Ordering: ...

    def _prefix_hit(self, request: Any) -> int:
        """Cached prompt tokens, as vLLM will count them at admission; nothing is touched, counted or told."""
        if request.skip_reading_prefix_cache:
            return 0
        # Not KVCacheManager.get_computed_blocks, which may send events of what it finds.
        found = self.kv_cache_manager.coordinator.find_longest_cache_hit(
            request.block_hashes, request.num_tokens - 1
        )
        return int(found[1])


class RoutingPrefix(OrderedScheduler):
    """By routing-prefix: labels that were admitted last, and the longest prefix hit, first."""

    def _make_ordering(self, vllm_config: Any, kv_cache_config: Any, groups: Groups) -> Ordering:
        capacity = label_capacity_of(os.environ, vllm_config, kv_cache_config)
        logger.info(
            "--scheduler-cls %s: label capacity C_A = %d, from %s; %s",
            ROUTING_PREFIX,
            capacity.value,
            capacity.source,
            _engine(),
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


class RoutingResidency(OrderedScheduler):
    """By routing-residency: trajectories that the block pool can resume first, in order of arrival."""

    def _make_ordering(self, vllm_config: Any, kv_cache_config: Any, groups: Groups) -> Ordering:
        logger.info("--scheduler-cls %s: %s", ROUTING_RESIDENCY, _engine())
        scheduling = vllm_config.scheduler_config
        return RoutingResidencyOrder(
            groups,
            scheduling.max_num_seqs,
            scheduling.max_num_batched_tokens,
            self._prefix_hit,
            get_block_hash,
        )


class RoutingPrefixScheduler(RoutingPrefix, Scheduler):  # type: ignore[misc]
    """For ``async_scheduling=False``."""


class RoutingPrefixAsyncScheduler(RoutingPrefix, AsyncScheduler):  # type: ignore[misc]
    """For ``async_scheduling=True``."""


class RoutingResidencyScheduler(RoutingResidency, Scheduler):  # type: ignore[misc]
    """For ``async_scheduling=False``."""


class RoutingResidencyAsyncScheduler(RoutingResidency, AsyncScheduler):  # type: ignore[misc]
    """For ``async_scheduling=True``."""


RoutingPrefix._by_overlap = (RoutingPrefixScheduler, RoutingPrefixAsyncScheduler)
RoutingResidency._by_overlap = (RoutingResidencyScheduler, RoutingResidencyAsyncScheduler)
_POLICIES = (RoutingPrefix, RoutingResidency)


def _engine() -> str:
    version = vllm_version()
    tested = "tested" if is_tested(version) else f"not tested; {', '.join(TESTED_VERSIONS)} are"
    return f"vLLM {version} ({tested})"


def _is_preempted(request: Any) -> bool:
    return bool(request.status == RequestStatus.PREEMPTED)
