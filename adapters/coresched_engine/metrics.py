"""The counters of a policy, by the same names in every engine's Prometheus metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from coresched_engine.counts import Counts

_COMMON = {
    "passes": "Passes of the policy over the waiting queue.",
    "changes": "Passes that changed the order of the waiting queue.",
    "seconds": "Seconds that the passes took, with what they asked the engine.",
    "refused_labels": "Requests whose label could not be one.",
}
_OWN = {
    "queries": "Requests whose prefix hit was asked for.",
    "lost": "Trajectories whose state the cache lost.",
    "held_back": "Passes in which a request waited so that no live trajectory was evicted.",
    "states_evicted": "States that were evicted because no live trajectory needed them.",
    "moved_back": "Times that a live trajectory was next to be evicted and was moved behind all others.",
    "states_demoted": "Blocks of superseded recurrent states that were put up for eviction.",
    "resumed": "Requests admitted once more after the engine had pushed them out.",
}
_CALLED = {"changes": "order_changes"}
_ADMITTED = "Requests admitted, by whether their label was in the policy's first tier."
_ADMITTED_BY = {"hits": "hit", "misses": "miss", "unlabelled": "none"}


def counter_families(
    kind: type[Counts], labels: tuple[str, ...], values: Iterable[tuple[tuple[str, ...], Counts]]
) -> Iterator[Any]:
    """The same counters for a scrape: of each of ``values``, the values of ``labels`` and its counts.

    ``kind`` is the class of these counts.
    """
    from prometheus_client.core import CounterMetricFamily

    family, found = f"coresched_{kind.FAMILY}", list(values)
    for field, text in (_COMMON | _OWN).items():
        if field in kind.__dataclass_fields__:
            name = f"{family}_{_CALLED.get(field, field)}"
            metric = CounterMetricFamily(name, text, labels=labels)
            for own, counts in found:
                metric.add_metric(own, getattr(counts, field))
            yield metric
    admitted = CounterMetricFamily(f"{family}_admitted", _ADMITTED, labels=(*labels, "label"))
    for own, counts in found:
        for field, by in _ADMITTED_BY.items():
            admitted.add_metric((*own, by), getattr(counts, field))
    yield admitted


class CounterSet:
    """Counters of one scheduler, for what ``counts`` has, made and at 0 when this is.

    ``counter(name=, documentation=, labelnames=)`` makes one; ``labels`` are the same on all.
    """

    def __init__(self, counter: Callable[..., Any], labels: Mapping[str, Any], counts: Counts) -> None:
        labels = dict(labels)
        family = f"coresched_{counts.FAMILY}"
        self._children = {
            field: counter(
                name=f"{family}_{_CALLED.get(field, field)}", documentation=text, labelnames=list(labels)
            ).labels(**labels)
            for field, text in (_COMMON | _OWN).items()
            if hasattr(counts, field)
        }
        admitted = counter(name=f"{family}_admitted", documentation=_ADMITTED, labelnames=[*labels, "label"])
        for field, found in _ADMITTED_BY.items():
            self._children[field] = admitted.labels(**labels, label=found)
        self._published = dict.fromkeys(self._children, 0.0)

    def publish(self, counts: Counts) -> None:
        """Bring the counters to ``counts``."""
        for field, child in self._children.items():
            value = getattr(counts, field)
            if value != self._published[field]:
                child.inc(value - self._published[field])
                self._published[field] = value
