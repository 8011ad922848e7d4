"""The counters of a policy in SGLang's own registry, under the labels of SGLang's scheduler metrics."""

from __future__ import annotations

from typing import Any

from coresched_sglang.routing_prefix import PrefixCounts

_COUNTERS = {
    "passes": ("coresched_prefix_passes", "Passes of the policy over the waiting queue."),
    "queries": ("coresched_prefix_queries", "Requests whose prefix hit was asked for."),
    "changes": ("coresched_prefix_order_changes", "Passes that changed the order of the waiting queue."),
    "seconds": ("coresched_prefix_seconds", "Seconds that the passes took, with the queries."),
    "refused_labels": ("coresched_prefix_refused_labels", "Requests whose label could not be one."),
}
_ADMITTED = ("coresched_prefix_admitted", "Requests admitted, by whether their label was in the label set.")
_ADMITTED_BY = {"hits": "hit", "misses": "miss", "unlabelled": "none"}


class PrefixMetrics:
    """Counters of one scheduler, registered and at 0 when this is made.

    ``collector`` is SGLang's SchedulerMetricsCollector. SGLang must have chosen the directory for metrics of
    several processes by then, as it has when its own collector exists.
    """

    def __init__(self, collector: Any) -> None:
        # A collector that writes elsewhere than to Prometheus says so, as SGLang's own metrics are told.
        counter = getattr(collector, "_counter_cls", None)
        if counter is None:
            from prometheus_client import Counter as counter  # not before that directory is chosen
        labels = dict(collector.labels)
        self._children = {
            field: counter(name=name, documentation=text, labelnames=list(labels)).labels(**labels)
            for field, (name, text) in _COUNTERS.items()
        }
        name, text = _ADMITTED
        admitted = counter(name=name, documentation=text, labelnames=[*labels, "label"])
        for field, found in _ADMITTED_BY.items():
            self._children[field] = admitted.labels(**labels, label=found)
        self._published = dict.fromkeys(self._children, 0.0)

    def publish(self, counts: PrefixCounts) -> None:
        """Bring the counters to ``counts``."""
        for field, child in self._children.items():
            value = getattr(counts, field)
            if value != self._published[field]:
                child.inc(value - self._published[field])
                self._published[field] = value


def scheduler_metrics(scheduler: Any) -> PrefixMetrics | None:
    """The counters where SGLang has metrics on, on the ranks that it counts on; else None."""
    context = getattr(scheduler, "metrics_collector_context", None)
    if context is None or context.collector is None or not context.current_scheduler_metrics_enabled:
        return None
    return PrefixMetrics(context.collector)
