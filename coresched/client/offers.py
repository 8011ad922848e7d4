"""Samples that were offered to whoever takes them up, in the order of admission."""

from __future__ import annotations

from typing import Literal

from coresched.batch.admission import AdmissionOrder, Entry


class Offers:
    """Names of samples that nobody has taken yet; a step takes O(log samples)."""

    def __init__(self, policy: Literal["submission", "longest-expected-first"]) -> None:
        self._order: AdmissionOrder[str] = AdmissionOrder(policy)
        self._entries: dict[str, Entry[str]] = {}  # of all that ever were offered
        self._open: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._open

    def add(self, name: str, expected: float | None) -> None:
        self._entries[name] = self._order.add(name, expected)
        self._open.add(name)

    def first(self) -> str | None:
        """None if there is none."""
        entry = self._order.first()
        return None if entry is None else entry.item

    def take(self, name: str) -> None:
        self._order.take(self._entries[name])
        self._open.remove(name)

    def put_back(self, name: str) -> None:
        """One that was taken is offered again."""
        self._order.put_back(self._entries[name])
        self._open.add(name)

    def clear(self) -> None:
        for name in list(self._open):
            self.take(name)
