"""LBCH and the batch coordinator inside Ray: a request router for Serve, and a named actor.

The router, which Serve imports by its path, is `coresched_ray.request_router.LoadBoundedRequestRouter`.
"""

from coresched_ray.coordinators import (
    connect,
    connect_blocking,
    coordinator,
    start_coordinator,
    stop_coordinator,
)
from coresched_ray.tools import gated_model, gated_tool

__all__ = [
    "connect",
    "connect_blocking",
    "coordinator",
    "gated_model",
    "gated_tool",
    "start_coordinator",
    "stop_coordinator",
]
