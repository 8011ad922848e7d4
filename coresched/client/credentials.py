"""How a client connects to `coresched serve`."""

from __future__ import annotations

from pathlib import Path

import grpc

# By itself gRPC would wait up to 2 minutes before it connects again to a service that was started anew. And a
# peer that vanished without a word is noticed within 30 s.
OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]


def channel(
    target: str,
    *,
    token: str | None = None,
    ca: str | Path | None = None,
    certificate: str | Path | None = None,
    key: str | Path | None = None,
) -> grpc.aio.Channel:
    """A grpc.aio channel to a server; it connects with its first call."""
    return grpc.aio.insecure_channel(target, OPTIONS)


def blocking_channel(
    target: str,
    *,
    token: str | None = None,
    ca: str | Path | None = None,
    certificate: str | Path | None = None,
    key: str | Path | None = None,
) -> grpc.Channel:
    """The same as `channel`, for threads."""
    return grpc.insecure_channel(target, OPTIONS)
