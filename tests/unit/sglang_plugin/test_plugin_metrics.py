"""The policy's counters under SGLang's labels."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from coresched_engine.counts import PrefixCounts
from coresched_sglang.metrics import PolicyMetrics, scheduler_metrics
from prometheus_client import CollectorRegistry, Counter

LABELS = {"model_name": "m", "tp_rank": 0}
NONE = PrefixCounts(
    passes=0, queries=0, changes=0, seconds=0.0, hits=0, misses=0, unlabelled=0, refused_labels=0
)


def collector(registry: CollectorRegistry) -> Any:
    def counter(name: str, documentation: str, labelnames: list[str]) -> Counter:
        return Counter(name, documentation, labelnames, registry=registry)

    return SimpleNamespace(labels=LABELS, _counter_cls=counter)


def samples(registry: CollectorRegistry) -> dict[str, float]:
    found = {}
    for family in registry.collect():
        for sample in family.samples:
            if sample.name.endswith("_total"):
                labels = dict(sample.labels)
                assert labels.pop("model_name") == "m"
                assert labels.pop("tp_rank") == "0"
                found[sample.name + "".join(labels.values())] = sample.value
    return found


def test_counters_are_there_at_zero_and_follow_the_counts() -> None:
    registry = CollectorRegistry()
    metrics = PolicyMetrics(collector(registry), NONE)
    assert set(samples(registry).values()) == {0.0}
    counts = PrefixCounts(
        passes=9, queries=8, changes=7, seconds=0.5, hits=6, misses=5, unlabelled=4, refused_labels=3
    )
    metrics.publish(counts)
    metrics.publish(counts)
    metrics.publish(replace(counts, passes=10))
    assert samples(registry) == {
        "coresched_prefix_passes_total": 10,
        "coresched_prefix_queries_total": 8,
        "coresched_prefix_order_changes_total": 7,
        "coresched_prefix_seconds_total": 0.5,
        "coresched_prefix_admitted_totalhit": 6,
        "coresched_prefix_admitted_totalmiss": 5,
        "coresched_prefix_admitted_totalnone": 4,
        "coresched_prefix_refused_labels_total": 3,
    }


@pytest.mark.parametrize("enabled", [True, False])
def test_a_rank_counts_where_sglang_counts(enabled: bool) -> None:
    context = SimpleNamespace(
        collector=collector(CollectorRegistry()), current_scheduler_metrics_enabled=enabled
    )
    metrics = scheduler_metrics(SimpleNamespace(metrics_collector_context=context), NONE)
    assert (metrics is not None) == enabled


def test_without_metrics_there_are_no_counters() -> None:
    off = SimpleNamespace(collector=None, current_scheduler_metrics_enabled=False)
    assert scheduler_metrics(SimpleNamespace(metrics_collector_context=off), NONE) is None
    assert scheduler_metrics(SimpleNamespace(), NONE) is None
