"""All metrics of one endpoint, put together when they are scraped."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from coresched.metrics.families import counters, histogram_family
from coresched_aibrix.endpoint import Endpoint


class EndpointCollector:
    """`collect` reads counters that are kept anyway; it must run on the event loop of the endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._process = ProcessCollector(registry=None)

    def collect(self) -> Iterator[Metric]:
        endpoint, picker = self._endpoint, self._endpoint.picker
        yield GaugeMetricFamily("coresched_aibrix_pods", "Pods on the hash ring.", value=picker.pods)
        yield counters(
            "coresched_aibrix_selected",
            "Decisions that named a pod, by where the label was found; request: nowhere.",
            "label_source",
            {str(source): count for source, count in endpoint.selected.items()},
        )
        yield CounterMetricFamily(
            "coresched_aibrix_spilled",
            "Decisions for another pod than the label's home.",
            value=picker.spilled,
        )
        yield CounterMetricFamily(
            "coresched_aibrix_no_decision",
            "Decisions left to AIBrix's fallback, because no candidate had runningRequests.",
            value=endpoint.undecided,
        )
        yield counters(
            "coresched_aibrix_refused_requests",
            "Requests answered with an error, which AIBrix counts as failures.",
            "status",
            {str(status): count for status, count in endpoint.refused.items()},
        )
        yield histogram_family(
            "coresched_aibrix_decision_seconds",
            "Choice of a candidate, without HTTP and JSON.",
            picker.decision_s,
        )
        yield from self._process.collect()
