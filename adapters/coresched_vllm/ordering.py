"""A policy of ours on vLLM's waiting queue: what a scheduler of ours asks of it in each of its passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any

from coresched_engine.counts import Counts

from coresched.core import AttachedOrder, Waiting
from coresched.core.prefix import LabelTiers
from coresched_vllm.labels import Labels

_WAITING = "_coresched_waiting"


def label_of(request: Any) -> str | None:
    """The label of a request that has been ordered; None also for one that has not."""
    waiting = getattr(request, _WAITING, None)
    return None if waiting is None else waiting.label


class Ordering(ABC):
    """The order of one scheduler's queue by ``policy``, which ``--scheduler-cls`` takes by ``name``.

    ``prefix_hit(request)`` is how many prompt tokens of it vLLM would take from its prefix cache now; None
    where the policy asks for none.

    Nothing here depends on a clock. A request's queue-entry time t is its number in the order of arrival,
    kept through preemptions, as is the hit that was recorded for it.
    """

    def __init__(self, name: str, policy: LabelTiers, prefix_hit: Callable[[Any], int] | None = None) -> None:
        self._tiers = policy
        self._attached = AttachedOrder(policy, _WAITING)
        self._prefix_hit = prefix_hit
        self._labels = Labels(name)
        self._entered = 0
        self._seconds = 0.0
        self._hits = self._misses = self._unlabelled = 0
        self.states_demoted = 0
        """Blocks of superseded states that were put up for eviction."""

    def finished(self, request_ids: Iterable[str]) -> None:  # noqa: B027  # not each policy must hear it
        """Before `order`: requests that have finished since the last pass."""

    def order(self, requests: list[Any]) -> None:
        """Put waiting requests into the policy's order, in place."""
        if not requests:
            return
        began = perf_counter()
        self._attached.order(requests, self._enter, self._prefix_hit)
        self._seconds += perf_counter() - began

    def held_back(self, preempted: Sequence[Any], ordered: Sequence[Any], running: Sequence[Any]) -> int:
        """How many of ``ordered``, from its end, must not run now; ``preempted`` go before them."""
        return 0

    def admitted(self, requests: Iterable[Any]) -> None:
        """Count requests that have left the queue to run, in the order of their admission."""
        for request in requests:
            waiting = getattr(request, _WAITING, None)
            if waiting is None:  # it ran without a pass, from a queue that no policy orders
                waiting = self._enter(request)
                setattr(request, _WAITING, waiting)
            label = waiting.label
            if label is None:
                self._unlabelled += 1
            elif label in self._tiers:
                self._hits += 1
            else:
                self._misses += 1
            self._admitted(label)

    def passed(self, running: Iterable[Any], admitted: Iterable[Any], output: Any) -> None:  # noqa: B027  # not each policy must hear it
        """After a pass of vLLM with this ``output``, a SchedulerOutput."""

    @abstractmethod
    def counts(self) -> Counts: ...

    def cache_emptied(self) -> None:  # noqa: B027  # not each policy must hear it
        """vLLM's prefix cache may have been reset."""

    def _admitted(self, label: str | None) -> None:  # noqa: B027  # not each policy must hear it
        pass

    def _enter(self, request: Any) -> Waiting:
        self._entered += 1
        return Waiting(str(request.request_id), self._labels.of(request), self._entered)

    def _common(self) -> dict[str, Any]:
        """The fields that the counts of all policies have."""
        return {
            "passes": self._attached.passes,
            "changes": self._attached.changed,
            "seconds": self._seconds,
            "hits": self._hits,
            "misses": self._misses,
            "unlabelled": self._unlabelled,
            "refused_labels": self._labels.refused,
            "states_demoted": self.states_demoted,
        }
