"""vLLM adapter: the policies of coresched inside vLLM's own scheduler, for `--scheduler-cls`."""

from __future__ import annotations

from typing import Any

# Classes of vLLM's scheduler. vLLM and its users name them here; without vLLM the package must import.
_SCHEDULERS = ("RoutingPrefix", "RoutingResidency")


def __getattr__(name: str) -> Any:
    """Raises InputError where vLLM lacks something that the scheduler needs."""
    if name not in _SCHEDULERS:
        given = " or ".join(f"{__name__}.{one}" for one in _SCHEDULERS)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; --scheduler-cls takes {given}")
    from coresched_vllm.compatibility import check_engine

    check_engine()
    from coresched_vllm import scheduler

    return getattr(scheduler, name)
