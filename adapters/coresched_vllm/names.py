"""The names by which `--scheduler-cls` takes this adapter's schedulers."""

from __future__ import annotations

PACKAGE = "coresched_vllm"
ROUTING_PREFIX = f"{PACKAGE}.RoutingPrefix"
ROUTING_RESIDENCY = f"{PACKAGE}.RoutingResidency"
SCHEDULERS = (ROUTING_PREFIX, ROUTING_RESIDENCY)


def is_ours(scheduler_cls: object) -> bool:
    """Whether vLLM's `scheduler_cls`, a dotted name, a class or None, is a scheduler of this adapter."""
    if isinstance(scheduler_cls, type):
        scheduler_cls = scheduler_cls.__module__
    return isinstance(scheduler_cls, str) and scheduler_cls.split(".")[0] == PACKAGE


def policy_name(scheduler_cls: object) -> str:
    """Which of `SCHEDULERS` a scheduler of this adapter is, also where it is named by a class of its own."""
    name = scheduler_cls.__name__ if isinstance(scheduler_cls, type) else str(scheduler_cls)
    last = name.rpartition(".")[2]
    return ROUTING_RESIDENCY if last.startswith("RoutingResidency") else ROUTING_PREFIX
