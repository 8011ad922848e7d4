"""The names by which `--scheduler-cls` takes this adapter's schedulers."""

from __future__ import annotations

PACKAGE = "coresched_vllm"
ROUTING_PREFIX = f"{PACKAGE}.RoutingPrefix"


def is_ours(scheduler_cls: object) -> bool:
    """Whether vLLM's `scheduler_cls`, a dotted name, a class or None, is a scheduler of this adapter."""
    if isinstance(scheduler_cls, type):
        scheduler_cls = scheduler_cls.__module__
    return isinstance(scheduler_cls, str) and scheduler_cls.split(".")[0] == PACKAGE
