"""Where facts are kept: the interface of a log, and the one that keeps nothing."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from coresched.service.batches.facts import AnyFact


class JournalError(Exception):
    """The log cannot be written; what it was given last may be lost."""


class FactLog(Protocol):
    def append(self, fact: AnyFact) -> int:
        """Take a fact to be written after those before it, without blocking; its sequence number."""
        ...

    async def committed(self, sequence: int) -> None:
        """Return once the fact of that number, and all before it, are durable. Raises JournalError."""
        ...

    def forget(self, keys: Collection[int]) -> None:
        """The facts of these batches, which were closed, need not be kept any more."""
        ...


class NoLog:
    """State is in memory only."""

    def __init__(self) -> None:
        self._sequence = 0

    def append(self, fact: AnyFact) -> int:
        self._sequence += 1
        return self._sequence

    async def committed(self, sequence: int) -> None:
        return

    def forget(self, keys: Collection[int]) -> None:
        return
