"""What the transports ask of the transport that sends for them."""

from __future__ import annotations

import httpx

NO_CONNECTION = (httpx.ConnectError, httpx.ConnectTimeout)
"""Failures before the first byte of a request was sent."""

# Sample concurrency limits how many requests there are; one that queued here would be counted on its worker.
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=None)


def check_factory(inner: object) -> None:
    """TypeError unless `inner` is None or something to call for a transport."""
    if inner is not None and not callable(inner):
        raise TypeError(
            f"inner must be a function that makes a transport, got {inner!r}; try inner=lambda: ..."
        )
