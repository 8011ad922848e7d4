"""SGLang's SchedulePolicy with this adapter's policies. Only SGLang can load this module."""

from __future__ import annotations

import logging
import os
from typing import Any

from sglang.srt.managers.schedule_policy import AddReqResult, SchedulePolicy
from sglang.srt.managers.scheduler import Scheduler

from coresched_sglang.compatibility import TESTED_VERSIONS, prefix_match, sglang_version
from coresched_sglang.names import POLICIES, ROUTING_PREFIX, ROUTING_RESIDENCY

logger = logging.getLogger(__name__)

# In a tuple, for SGLang puts the hooked function in place of the other in every module that names it.
_UNHOOKED = (Scheduler.get_new_batch_prefill,)


class OrderedPolicy(SchedulePolicy):  # type: ignore[misc]  # untyped where SGLang is not installed
    """SGLang's policy. Under one of our names it is SGLang's FCFS, with the queue ordered before each pass.

    So what SGLang does in a pass beside sorting stays, such as the matching where it calls that fast. Under
    any other name nothing is different.
    """

    def __init__(
        self,
        policy: str,
        tree_cache: Any,
        enable_hierarchical_cache: bool,
        enable_priority_scheduling: bool,
        schedule_low_priority_values_first: bool,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        self.ordering: Any = None
        self._metrics: Any = None
        self._metrics_sought = False
        if policy in POLICIES:
            if getattr(tree_cache, "disable", True):  # as SGLang does with its own cache-aware policies
                logger.warning(
                    "--schedule-policy %s: the prefix cache is off, so there is nothing to order by; this "
                    "server is first come, first served",
                    policy,
                )
            else:
                self.ordering = _ordering(
                    policy,
                    tree_cache,
                    enable_hierarchical_cache,
                    enable_priority_scheduling,
                    schedule_low_priority_values_first,
                )
                enable_priority_scheduling = False  # in the ordering, without a call for each request
            policy = "fcfs"
        super().__init__(
            policy,
            tree_cache,
            enable_hierarchical_cache,
            enable_priority_scheduling,
            schedule_low_priority_values_first,
            *args,
            **kwargs,
        )

    def calc_priority(
        self, waiting_queue: list[Any], running_batch: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        if self.ordering is not None:
            self.ordering.order(waiting_queue, running_batch)
        return super().calc_priority(waiting_queue, running_batch, *args, **kwargs)

    def _touch_waiting_prefixes(self, *args: Any, **kwargs: Any) -> None:
        """Not under our names. SGLang walks the prefixes of up to 128 requests every 32nd pass, so that they
        are not evicted under a policy that does not look at the cache. Ours admit the cached requests first,
        so while one waits little is evicted; and the walk takes longer than all passes in between.
        """
        if self.ordering is None:
            super()._touch_waiting_prefixes(*args, **kwargs)

    def after_prefill(self, plan: Any, scheduler: Any) -> None:
        """Tell the ordering what SGLang admitted, and SGLang's metrics what the ordering did."""
        if self.ordering is None:
            return
        if not self._metrics_sought:  # the first time is before the first request
            from coresched_sglang.metrics import scheduler_metrics

            self._metrics = scheduler_metrics(scheduler, self.ordering.counts())
            self._metrics_sought = True
        if self.ordering.admit(plan, scheduler) and self._metrics is not None:
            self._metrics.publish(self.ordering.counts())


def after_prefill(plan: Any, scheduler: Any, *_args: object, **_kwargs: object) -> None:
    """After ``Scheduler.get_new_batch_prefill``, with what it returned."""
    if isinstance(scheduler.policy, OrderedPolicy):
        scheduler.policy.after_prefill(plan, scheduler)


def _ordering(policy: str, tree_cache: Any, hierarchical: bool, by_priority: bool, lowest_first: bool) -> Any:
    """Raises RuntimeError where SGLang left out a hook, InputError for what cannot be used."""
    if Scheduler.get_new_batch_prefill in _UNHOOKED:  # SGLang only logs a hook that fails
        raise RuntimeError(
            f"--schedule-policy {policy} cannot see what the scheduler admits, since SGLang did not hook "
            "Scheduler.get_new_batch_prefill (its log says why); use another policy"
        )
    version = sglang_version()
    tested = "tested" if version in TESTED_VERSIONS else f"not tested; {', '.join(TESTED_VERSIONS)} are"
    if policy == ROUTING_RESIDENCY:
        logger.info("--schedule-policy %s: SGLang %s (%s)", policy, version, tested)
        return _routing_residency(tree_cache, by_priority, lowest_first)
    # Imported here: servers that use none of our policies need none of it.
    from coresched_sglang.configuration import asked_label_capacity
    from coresched_sglang.pools import derived_label_capacity
    from coresched_sglang.routing_prefix import RoutingPrefix

    match = prefix_match()
    if match is None:
        raise RuntimeError(f"--schedule-policy {policy}: SGLang's prefix match is gone; use another policy")
    capacity = asked_label_capacity(os.environ) or derived_label_capacity(tree_cache, hierarchical)
    logger.info(
        "--schedule-policy %s: label capacity C_A = %d, from %s; SGLang %s (%s)",
        policy,
        capacity.value,
        capacity.source,
        version,
        tested,
    )
    return RoutingPrefix(
        capacity.value,
        lambda request: match(request, tree_cache),
        by_priority=by_priority,
        lowest_first=lowest_first,
    )


def _routing_residency(tree_cache: Any, by_priority: bool, lowest_first: bool) -> Any:
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

    from coresched.errors import InputError
    from coresched_sglang.routing_residency import RoutingResidency

    if type(tree_cache) is not UnifiedRadixCache:
        raise InputError(
            f"--schedule-policy {ROUTING_RESIDENCY} follows SGLang's UnifiedRadixCache, and this server has "
            f"the {type(tree_cache).__name__}; use {ROUTING_PREFIX}"
        )
    return RoutingResidency(tree_cache, _guarded, by_priority=by_priority, lowest_first=lowest_first)


def _guarded(adder_class: Any, holds_back: Any) -> Any:
    """A PrefillAdder that ends the pass at the first request that is held back."""

    class GuardedPrefillAdder(adder_class):  # type: ignore[misc]  # a class only SGLang knows
        def add_one_req(self, req: Any, *args: Any, **kwargs: Any) -> Any:
            # Not NO_TOKEN, after which SGLang tries no request until one ends.
            return AddReqResult.OTHER if holds_back(self, req) else super().add_one_req(req, *args, **kwargs)

    return GuardedPrefillAdder
