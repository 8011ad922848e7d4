"""When a call is sent again, and what a refusal means."""

from __future__ import annotations

import random
from collections.abc import Iterator

import grpc

from coresched.client.errors import BatchClosedError, ServiceError, ServiceLimitError, SessionLostError

FIRST_DELAY_S = 0.05
LONGEST_DELAY_S = 5.0
ATTEMPT_S = 10.0
"""Seconds to wait for the reply to a call that does not itself wait, before it is sent again."""

CHANNEL_OPTIONS = (
    # By itself gRPC would wait up to 2 minutes before it connects again to a service that was started anew.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # A service that vanished without a word is noticed within 30 s. It puts up with such pings because of the
    # heartbeats, with which it says something between them.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)

# The call may or may not have been carried out; sent again with its request_id, it is, once. CANCELLED is
# what a service that stops says of calls it cut short.
_PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


def delays() -> Iterator[float]:
    """Seconds before each further attempt: doubling from 0.05 to 5, each drawn from its upper half."""
    ceiling = FIRST_DELAY_S
    while True:
        yield random.uniform(ceiling / 2, ceiling)
        ceiling = min(2 * ceiling, LONGEST_DELAY_S)


def passing(code: grpc.StatusCode) -> bool:
    """Whether the same call may be answered if it is sent again."""
    return code in _PASSING


def refusal(code: grpc.StatusCode, message: str) -> Exception:
    """What a harness is told of a refused call. The message of a status begins with the field at fault."""
    status = grpc.StatusCode
    if code is status.INVALID_ARGUMENT or (code is status.FAILED_PRECONDITION and _of(message, "options")):
        return ValueError(message)
    if code is status.ABORTED and not _of(message, "sample"):
        return BatchClosedError(message)
    if code in (status.NOT_FOUND, status.FAILED_PRECONDITION) and _of(message, "session"):
        # The session of a batch that was closed ended with it, which is no loss.
        return (
            BatchClosedError(message)
            if "batch was closed" in message
            else SessionLostError(message, code.name)
        )
    if code in (status.NOT_FOUND, status.FAILED_PRECONDITION) and _of(message, "exclude"):
        return LookupError(message)
    if code is status.RESOURCE_EXHAUSTED:
        return ServiceLimitError(message, code.name)
    return ServiceError(message, code.name)


def _of(message: str, field: str) -> bool:
    return message.startswith(f"{field} ")
