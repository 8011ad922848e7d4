"""The counters of a policy in SGLang's own registry, under the labels of SGLang's scheduler metrics."""

from __future__ import annotations

from typing import Any

from coresched_engine.counts import Counts
from coresched_engine.metrics import CounterSet


class PolicyMetrics(CounterSet):
    """Counters of one scheduler, for what ``counts`` has, registered and at 0 when this is made.

    ``collector`` is SGLang's SchedulerMetricsCollector. SGLang must have chosen the directory for metrics of
    several processes by then, as it has when its own collector exists.
    """

    def __init__(self, collector: Any, counts: Counts) -> None:
        from prometheus_client import Counter  # not before that directory is chosen

        # Set where SGLang's metrics go elsewhere than to Prometheus.
        counter: Any = getattr(collector, "_counter_cls", None) or Counter
        super().__init__(counter, collector.labels, counts)


def scheduler_metrics(scheduler: Any, counts: Counts) -> PolicyMetrics | None:
    """The counters where SGLang has metrics on, on the ranks that it counts on; else None."""
    context = getattr(scheduler, "metrics_collector_context", None)
    if context is None or context.collector is None or not context.current_scheduler_metrics_enabled:
        return None
    return PolicyMetrics(context.collector, counts)
