"""mini-swe-agent adapter: its environments and models under a gate, named in its own YAML by import path.

    environment: {environment_class: coresched_miniswe.GatedEnvironment, inner_class: docker}
    model: {model_class: coresched_miniswe.GatedModel, inner_class: litellm}

The gate is that of `coresched.client.gate.process_gate`, made from CORESCHED_* variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coresched_miniswe.trajectories import trajectory

if TYPE_CHECKING:
    from coresched_miniswe.environment import GatedEnvironment
    from coresched_miniswe.model import GatedModel

__all__ = ["GatedEnvironment", "GatedModel", "trajectory"]


def __getattr__(name: str) -> Any:
    """The classes, at their first use: without mini-swe-agent the package must import."""
    if name not in ("GatedEnvironment", "GatedModel"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from coresched_miniswe.compatibility import FIT

    FIT.check()
    from coresched_miniswe import environment, hooks, model

    hooks.hook_agents()
    found: type = getattr(environment, name, None) or getattr(model, name)
    return found
