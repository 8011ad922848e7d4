"""The counters of a policy in SGLang's own registry, under the labels of SGLang's scheduler metrics."""

from __future__ import annotations

from typing import Any

from coresched_sglang.ordering import Counts

_COMMON = {
    "passes": "Passes of the policy over the waiting queue.",
    "changes": "Passes that changed the order of the waiting queue.",
    "seconds": "Seconds that the passes took, with what they asked SGLang.",
    "refused_labels": "Requests whose label could not be one.",
}
_OWN = {
    "queries": "Requests whose prefix hit was asked for.",
    "lost": "Trajectories whose state the cache lost.",
    "held_back": "Passes in which a request waited so that no live trajectory was evicted.",
    "states_evicted": "States that were evicted because no live trajectory needed them.",
}
_CALLED = {"changes": "order_changes"}
_ADMITTED = "Requests admitted, by whether their label was in the policy's first tier."
_ADMITTED_BY = {"hits": "hit", "misses": "miss", "unlabelled": "none"}


class PolicyMetrics:
    """Counters of one scheduler, for what ``counts`` has, registered and at 0 when this is made.

    ``collector`` is SGLang's SchedulerMetricsCollector. SGLang must have chosen the directory for metrics of
    several processes by then, as it has when its own collector exists.
    """

    def __init__(self, collector: Any, counts: Counts) -> None:
        from prometheus_client import Counter  # not before that directory is chosen

        # Set where SGLang's metrics go elsewhere than to Prometheus.
        counter: Any = getattr(collector, "_counter_cls", None) or Counter
        labels = dict(collector.labels)
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


def scheduler_metrics(scheduler: Any, counts: Counts) -> PolicyMetrics | None:
    """The counters where SGLang has metrics on, on the ranks that it counts on; else None."""
    context = getattr(scheduler, "metrics_collector_context", None)
    if context is None or context.collector is None or not context.current_scheduler_metrics_enabled:
        return None
    return PolicyMetrics(context.collector, counts)
