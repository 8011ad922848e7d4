"""Answers of the gateway itself: errors in the JSON form that OpenAI's clients read."""

from __future__ import annotations

from typing import Literal

import msgspec
from aiohttp import web

_LONGEST_SHOWN = 60

Code = Literal[
    "invalid_request",
    "invalid_label",
    "not_found",
    "body_too_large",
    "no_healthy_worker",
    "too_many_in_flight",
    "router_away",
    "worker_failed",
    "internal",
    "queue_deadline",
    "call_given_up",
    "batch_failed",
    "trajectory_ended",
]


class RefusedError(Exception):
    """The request gets an answer of the gateway instead of a worker's; `status` is its HTTP status.

    `param` is the header or body field at fault, `retry_after_s` the seconds until another try may help.
    """

    def __init__(
        self,
        status: int,
        code: Code,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s


def error_body(refused: RefusedError) -> bytes:
    """The refusal as JSON."""
    error = {
        "message": refused.message,
        "type": "invalid_request_error" if refused.status < 500 else "server_error",
        "param": refused.param,
        "code": refused.code,
    }
    return msgspec.json.encode({"error": error})


def answer(refused: RefusedError) -> web.Response:
    """The refusal as a response."""
    response = web.Response(status=refused.status, body=error_body(refused), content_type="application/json")
    if refused.retry_after_s is not None:
        response.headers["Retry-After"] = str(refused.retry_after_s)
    return response


def shown(text: str) -> str:
    """Text of a client for a message: quoted, cut short, and such that UTF-8 can encode it."""
    return ascii(text) if len(text) <= _LONGEST_SHOWN else ascii(text[:_LONGEST_SHOWN] + "...")
