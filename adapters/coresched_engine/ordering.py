"""What the orders of a waiting queue share, whichever engine's it is: labels of requests, and counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final

from coresched.core import AttachedOrder
from coresched.core.prefix import LabelTiers
from coresched_engine.counts import Counts
from coresched_engine.labels import LabelReader

WAITING: Final = "_coresched_waiting"
"""The attribute of an engine's request at which its `Waiting` is."""


def label_of(request: Any) -> str | None:
    """The label of a request that has been ordered; None also for one that has not."""
    waiting = getattr(request, WAITING, None)
    return None if waiting is None else waiting.label


class CountedOrder(ABC):
    """Requests of one scheduler in the order of ``policy``, by ``attached``, and what was counted of them.

    Nothing here depends on a clock: every rank of a model must find the same order. A request's queue-entry
    time t is therefore its number in the order of arrival, which all ranks see alike.
    """

    def __init__(self, policy: LabelTiers, attached: AttachedOrder, labels: LabelReader) -> None:
        self._tiers = policy
        self._attached = attached
        self._labels = labels
        self._entered = 0
        self._seconds = 0.0
        self._hits = self._misses = self._unlabelled = 0

    @abstractmethod
    def counts(self) -> Counts: ...

    @property
    def _admissions(self) -> int:
        return self._hits + self._misses + self._unlabelled

    def _count(self, label: str | None) -> None:
        """A request was admitted."""
        if label is None:
            self._unlabelled += 1
        elif label in self._tiers:
            self._hits += 1
        else:
            self._misses += 1

    def _common(self) -> dict[str, Any]:
        """The fields of `Counts`."""
        return {
            "passes": self._attached.passes,
            "changes": self._attached.changed,
            "seconds": self._seconds,
            "hits": self._hits,
            "misses": self._misses,
            "unlabelled": self._unlabelled,
            "refused_labels": self._labels.refused,
        }
