"""vLLM's configuration, read where an engine is asked for: what cannot work is refused before any process."""

from __future__ import annotations

import os
from typing import Any

from coresched.errors import InputError
from coresched_vllm.compatibility import check_engine
from coresched_vllm.configuration import asked_label_capacity
from coresched_vllm.names import ROUTING_PREFIX


def check(vllm_config: Any) -> None:
    """Raises InputError for a bad label capacity and for what the scheduler cannot work with."""
    check_engine()
    if reason := _cannot_work(vllm_config):
        raise InputError(f"--scheduler-cls {ROUTING_PREFIX} {reason}")
    asked_label_capacity(os.environ, vllm_config.additional_config)


def _cannot_work(vllm_config: Any) -> str | None:
    """The reason why, if it cannot work with the rest of the configuration."""
    policy = vllm_config.scheduler_config.policy
    if policy != "fcfs":
        return (
            f"orders requests by their trajectories, and --scheduling-policy {policy} by something else; "
            "leave --scheduling-policy out"
        )
    if getattr(vllm_config, "diffusion_config", None) is not None:
        return "does not schedule diffusion models, which vLLM has a scheduler of its own for; leave it out"
    return None
