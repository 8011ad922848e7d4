"""vLLM's configuration, read where an engine is asked for: what cannot work is refused before any process."""

from __future__ import annotations

import os
from typing import Any

from coresched.errors import InputError
from coresched_vllm.compatibility import check_engine
from coresched_vllm.configuration import asked_label_capacity, one_state_per_trajectory
from coresched_vllm.names import ROUTING_PREFIX, ROUTING_RESIDENCY, policy_name

NO_CACHE = (
    "orders requests by what the prefix cache holds, and there is none; "
    "use --enable-prefix-caching, or leave --scheduler-cls out"
)


def check(vllm_config: Any, scheduler_cls: object = None) -> None:
    """Raises InputError for a bad setting and for what the scheduler cannot work with.

    ``scheduler_cls`` is the scheduler's class, or its name; None for the one that is asked for.
    """
    check_engine()
    name = policy_name(scheduler_cls or vllm_config.scheduler_config.scheduler_cls)
    if reason := _cannot_work(vllm_config, name):
        raise InputError(f"--scheduler-cls {name} {reason}")
    asked_label_capacity(os.environ, vllm_config.additional_config)
    one_state_per_trajectory(os.environ, vllm_config.additional_config)


def _cannot_work(vllm_config: Any, name: str) -> str | None:
    """The reason why, if it cannot work with the rest of the configuration."""
    policy = vllm_config.scheduler_config.policy
    if policy != "fcfs":
        return (
            f"orders requests by their trajectories, and --scheduling-policy {policy} by something else; "
            "leave --scheduling-policy out"
        )
    if getattr(vllm_config, "diffusion_config", None) is not None:
        return "does not schedule diffusion models, which vLLM has a scheduler of its own for; leave it out"
    if name == ROUTING_RESIDENCY:
        return _cannot_follow_the_cache(vllm_config)
    return None


def _cannot_follow_the_cache(vllm_config: Any) -> str | None:
    if not vllm_config.cache_config.enable_prefix_caching:
        return NO_CACHE
    if vllm_config.kv_transfer_config is not None:
        return (
            "looks at the engine's own blocks only, and --kv-transfer-config keeps prefixes beyond them; "
            f"use {ROUTING_PREFIX}"
        )
    return None
