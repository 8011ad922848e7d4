"""What `request_router_kwargs` may hold, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from coresched.core.routers import DEFAULT_VIRTUAL_NODES, make_router

ROUTING_HEADER = "x-smg-routing-key"


@dataclass(frozen=True)
class RouterOptions:
    """Keyword arguments of `LoadBoundedRequestRouter`; Serve hands them on as JSON."""

    load_bound: float = 1.25
    """alpha, finite, at least 1."""
    virtual_nodes: int = DEFAULT_VIRTUAL_NODES
    """Points on the ring for each slot."""
    router: str = "lbch"
    """A name of `coresched.core.routers.make_router`."""
    slack: int = 0
    """Requests that a replica may have beyond the bound."""
    label_header: str | None = ROUTING_HEADER
    """The HTTP header that gives the label, before the session id; None: no header."""
    label_argument: str | None = None
    """The keyword argument of handle calls that gives the label, before all else; None: no argument."""


def checked_options(given: Mapping[str, Any]) -> RouterOptions:
    """Raises TypeError or ValueError, in one line, for a name or a value that cannot be."""
    known = [field.name for field in fields(RouterOptions)]
    for name in given:
        if name not in known:
            raise ValueError(f"request_router_kwargs must be among {', '.join(known)}, got {name!r}")
    options = RouterOptions(**given)
    make_router(options.router, (), options.load_bound, options.virtual_nodes, options.slack)
    for name in ("label_header", "label_argument"):
        value = getattr(options, name)
        if value is not None and not (isinstance(value, str) and value.isascii() and value.strip()):
            raise ValueError(f"{name} must be a name or null, got {value!r}")
    return options
