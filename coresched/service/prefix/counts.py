"""What all waiting queues did since the service started."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class PrefixCounts:
    """Numbers of calls to Order, of passes, of requests whose hit was asked for, and of requests admitted.

    The last by whether their label was in A then: `hits`, `misses`, or `unlabelled`.
    """

    orders: int = 0
    passes: int = 0
    questions: int = 0
    hits: int = 0
    misses: int = 0
    unlabelled: int = 0
