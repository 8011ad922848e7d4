"""Time in a queue of ours is no time of the sample: neither of its working time nor of its time limits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import anyio

_stopped: WeakKeyDictionary[Any, tuple[int, float]] = WeakKeyDictionary()
"""Time limits whose clock stands: how many wait, and since when."""


@contextmanager
def off_the_clock() -> Iterator[None]:
    """A wait that no limit of inspect charges to the sample.

    Working time leaves out what inspect is told of as waiting. A time limit is wall-clock time, with an end
    that was fixed when it began; it is moved by the length of the wait.
    """
    from inspect_ai.util import suspend_working_limit

    limits = list(_time_limits())
    for limit in limits:
        _stop(limit)
    try:
        with suspend_working_limit():
            yield
    finally:
        for limit in limits:
            _go_on(limit)


def _time_limits() -> Iterator[Any]:
    """Those of this context that run, the innermost first."""
    from inspect_ai.util._limit import time_limit_tree

    limit: Any = time_limit_tree.get()
    while limit is not None:
        if limit._start_time is not None and limit._end_time is None:
            yield limit
        limit = limit.parent


def _stop(limit: Any) -> None:
    waiting, since = _stopped.get(limit, (0, anyio.current_time()))
    _stopped[limit] = waiting + 1, since
    if not limit._cancel_scope.cancel_called:
        limit._cancel_scope.deadline = math.inf


def _go_on(limit: Any) -> None:
    waiting, since = _stopped.pop(limit)
    if waiting > 1:
        _stopped[limit] = waiting - 1, since
        return
    limit._start_time += anyio.current_time() - since
    limit._refresh_deadline()  # from the start time; nothing if it has ended or fired
