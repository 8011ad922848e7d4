"""Metric families that servers of this package have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from coresched.metrics.histogram import Histogram


def histogram_family(name: str, about: str, histogram: Histogram) -> HistogramMetricFamily:
    """The family of one histogram without labels."""
    return HistogramMetricFamily(name, about, buckets=histogram.buckets(), sum_value=histogram.sum)


def counters(name: str, about: str, label: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    """A counter for each value of one label."""
    family = CounterMetricFamily(name, about, labels=(label,))
    for value, count in counts.items():
        family.add_metric((value,), count)
    return family


def imbalance_families(
    prefix: str, over: str, present: float | None, over_s: float, busy_s: float
) -> Iterator[Metric]:
    """Request imbalance d `over` some workers: now, its integral, and the time that is over."""
    yield GaugeMetricFamily(
        f"{prefix}_request_imbalance",
        f"Request imbalance d over the {over} workers now, 0 to 1.",
        value=present or 0.0,
    )
    yield CounterMetricFamily(
        f"{prefix}_request_imbalance_seconds",
        "Integral of the request imbalance over the time with more than one request in flight.",
        value=over_s,
    )
    yield CounterMetricFamily(
        f"{prefix}_request_busy_seconds", "Time with more than one request in flight.", value=busy_s
    )
