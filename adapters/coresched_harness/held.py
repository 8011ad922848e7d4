"""Blocks of the gate inside a harness that catches whatever its tasks raise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from coresched.client.gate.blocks import Block

Held = TypeVar("Held", bound=Block[Any])


class GateFailure(BaseException):
    """The gate itself failed: its batch is closed, its service lost, a step out of order.

    No Exception, because harnesses, and their clients' retries, take one of these for the failure of a task
    or of a request, and would write a result that says so. This one ends the run.
    """


@contextmanager
def held(make: Callable[[], Held]) -> Iterator[Held]:
    """The block of `make`, entered: what these raise becomes a GateFailure, what the body raises stays."""
    try:
        block = make()
        block.__enter__()
    except Exception as error:
        raise GateFailure(str(error)) from error
    try:
        yield block
    except BaseException as error:
        _leave(block, error)
        raise
    _leave(block, None)


def _leave(block: Block[Any], raised: BaseException | None) -> None:
    try:
        block.__exit__(None if raised is None else type(raised), raised, None)
    except Exception as error:
        raise GateFailure(str(error)) from error
