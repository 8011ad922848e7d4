"""Where facts go before their calls are answered."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from coresched.service.batches.facts import AnyFact


class JournalError(Exception):
    """A fact cannot be made durable. The message is one sentence."""


class FactLog(Protocol):
    """Keeps facts in the order in which they were appended."""

    def append(self, fact: AnyFact) -> int:
        """Take a fact, without waiting; its sequence number."""

    async def committed(self, sequence: int) -> None:
        """Return once the fact, and so all before it, is durable. Raises JournalError if it cannot be."""

    def forget(self, keys: Collection[int]) -> None:
        """The facts of these closed batches need not be kept any more."""
