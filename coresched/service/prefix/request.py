"""One request of a waiting queue, and what the engine tells of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from grpc import StatusCode

from coresched.core.checks import check_count, check_label
from coresched.core.prefix import Waiting
from coresched.service.refusal import RefusedError, shown


class Request(Waiting):
    """A waiting request; `tokens` is its prefix hit as soon as the engine told it."""

    __slots__ = ("tokens",)
    tokens: int | None


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a client says of a request that enters; `queued_at` in seconds, `hit_tokens` in tokens."""

    name: str
    label: str | None = None
    queued_at: float | None = None
    hit_tokens: int | None = None


def record(asked: Sequence[Request], tokens: Sequence[int]) -> None:
    """Record the answer to a question; a hit that was told meanwhile stands.

    Refused: INVALID_ARGUMENT unless there is one count of tokens, at least 0, for each request.
    """
    if len(tokens) != len(asked):
        raise RefusedError(
            StatusCode.INVALID_ARGUMENT,
            "tokens",
            f"tokens must have one hit for each of the {len(asked)} requests asked for, got {len(tokens)}",
        )
    for request, hit in zip(asked, tokens, strict=True):
        check_tokens("tokens", hit, request.id)
    for request, hit in zip(asked, tokens, strict=True):
        if request.tokens is None:
            request.tokens = hit


def entered(pushed: Pushed, arrival: int) -> Request:
    """The request as it waits; `arrival` stands for a queued_at left out.

    Refused: INVALID_ARGUMENT for label, queued_at and hit_tokens.
    """
    if pushed.label is not None:
        with _refusing("label", pushed.name):
            check_label(pushed.label, "label")
    if pushed.hit_tokens is not None:
        check_tokens("hit_tokens", pushed.hit_tokens, pushed.name)
    with _refusing("queued_at", pushed.name):
        queued_at = float(arrival) if pushed.queued_at is None else pushed.queued_at
        request = Request(pushed.name, pushed.label, queued_at)
    request.tokens = pushed.hit_tokens
    return request


def check_tokens(field: str, tokens: int, name: str) -> None:
    """Refused: INVALID_ARGUMENT unless the hit told of the request `name` is at least 0."""
    with _refusing(field, name):
        check_count(tokens, field, 0)


@contextmanager
def _refusing(field: str, name: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise RefusedError(
            StatusCode.INVALID_ARGUMENT, field, f"{error}, for request {shown(name)}"
        ) from None


def told(request: Waiting) -> int:
    """The hit of a request that was told it, as the policy asks for it."""
    tokens = request.tokens if isinstance(request, Request) else None
    if tokens is None:
        raise AssertionError(f"a pass was made with the hit of {request!r} unasked")
    return tokens
