"""All metrics of one service, put together when they are scraped."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from coresched.metrics.families import counters as _counters
from coresched.metrics.families import histogram_family as _histogram
from coresched.metrics.families import imbalance_families
from coresched.service.batches.chains import DEPTHS
from coresched.service.entry import Standing
from coresched.service.journal import Journal
from coresched.service.prefix.queues import WaitingQueues
from coresched.service.refusals import refusals
from coresched.service.state import ServiceState
from coresched.service.table import RoutingTable
from coresched.service.telemetry.batch_families import batch_families
from coresched.service.telemetry.latencies import Latencies

MOST_WORKERS = 1_000
"""Most workers with series of their own, the first to be registered."""


class ServiceCollector:
    """`collect` reads counters that are kept anyway; it must run on the event loop of the service."""

    def __init__(self, state: ServiceState) -> None:
        self._state = state
        self._latencies = Latencies()
        self._process = ProcessCollector(registry=None)
        state.batches.parts.recorder.listeners.append(self._latencies.on_fact)

    def collect(self) -> Iterator[Metric]:
        parts = self._state.batches.parts
        yield from batch_families(parts.ledger, parts.clock.now())
        yield from _latency_families(self._latencies)
        yield GaugeMetricFamily("coresched_waiting_calls", "Calls that wait now.", value=parts.waits.blocked)
        yield from _router_families(self._state.table)
        yield from _prefix_families(self._state.queues)
        if self._state.journal is not None:
            yield from _journal_families(self._state.journal)
        refused = CounterMetricFamily("coresched_refused_calls", "Calls refused.", labels=("rpc", "code"))
        for labels, count in refusals.counts.items():
            refused.add_metric(labels, count)
        yield refused
        yield from self._process.collect()


def _latency_families(latencies: Latencies) -> Iterator[Metric]:
    yield _histogram(
        "coresched_admission_wait_seconds", "Claim to admission of a sample.", latencies.admission_wait_s
    )
    yield _histogram(
        "coresched_environment_wait_seconds",
        "Request to grant of an environment slot.",
        latencies.environment_wait_s,
    )
    waits = SummaryMetricFamily(
        "coresched_environment_wait_by_turns_seconds",
        "Request to grant of an environment slot, by turns the sample had completed.",
        labels=("turns",),
    )
    for name, (count, seconds) in zip(DEPTHS, latencies.environment_wait_s_by_depth, strict=True):
        waits.add_metric((name,), count, seconds)
    yield waits
    yield _histogram("coresched_turn_seconds", "Completed inference turns.", latencies.turn_s)
    yield _histogram(
        "coresched_environment_stage_seconds", "Completed environment stages.", latencies.environment_s
    )
    yield _histogram(
        "coresched_resident_wait_seconds", "Request to grant of a resident slot.", latencies.resident_wait_s
    )
    yield _histogram(
        "coresched_resident_seconds", "Resident slots held by blocks that completed.", latencies.resident_s
    )
    yield _counters("coresched_turns", "Inference turns by how they ended.", "outcome", latencies.turns)
    yield _counters(
        "coresched_environment_stages",
        "Environment stages by how they ended.",
        "outcome",
        latencies.environment_stages,
    )
    yield _counters(
        "coresched_residents", "Resident slots by how they ended.", "outcome", latencies.residents
    )
    yield _counters("coresched_sessions_ended", "Sessions by how they ended.", "how", latencies.sessions)


def _router_families(table: RoutingTable) -> Iterator[Metric]:
    workers = list(table.workers().items())
    number = GaugeMetricFamily("coresched_workers", "Workers by where they stand.", labels=("state",))
    for standing in Standing:
        count = sum(entry.standing is standing for _, entry in workers)
        number.add_metric((standing.name.lower(),), count)
    yield number
    in_flight = GaugeMetricFamily(
        "coresched_worker_in_flight", "L(w), inference requests in flight.", labels=("worker",)
    )
    standings = GaugeMetricFamily(
        "coresched_worker_state", "1 for the state of the worker, else 0.", labels=("worker", "state")
    )
    routed = CounterMetricFamily("coresched_worker_routed", "Requests routed there.", labels=("worker",))
    spilled = CounterMetricFamily(
        "coresched_worker_spilled",
        "Requests that had the worker as home and went to another.",
        labels=("worker",),
    )
    for name, entry in workers[:MOST_WORKERS]:
        in_flight.add_metric((name,), entry.in_flight)
        for standing in Standing:
            standings.add_metric((name, standing.name.lower()), entry.standing is standing)
        routed.add_metric((name,), entry.routed)
        spilled.add_metric((name,), entry.spilled)
    yield from (in_flight, standings, routed, spilled)
    imbalance = table.imbalance()
    yield from imbalance_families(
        "coresched", "routable", imbalance.present, imbalance.over_s, imbalance.busy_s
    )
    yield _histogram(
        "coresched_route_decision_seconds", "Choice of a worker, checks included.", table.decision_s
    )


def _prefix_families(queues: WaitingQueues) -> Iterator[Metric]:
    counts, sizes = queues.counts, queues.sizes()
    yield GaugeMetricFamily("coresched_prefix_queues", "Open waiting queues.", value=len(sizes))
    yield GaugeMetricFamily("coresched_prefix_waiting", "Requests in the waiting queues.", value=sum(sizes))
    yield CounterMetricFamily("coresched_prefix_orders", "Orders asked for.", value=counts.orders)
    yield CounterMetricFamily("coresched_prefix_passes", "Passes made.", value=counts.passes)
    yield CounterMetricFamily(
        "coresched_prefix_questions", "Requests whose prefix hit was asked for.", value=counts.questions
    )
    yield _counters(
        "coresched_prefix_admitted",
        "Requests admitted, by whether their label was in A.",
        "label",
        {"hit": counts.hits, "miss": counts.misses, "none": counts.unlabelled},
    )


def _journal_families(journal: Journal) -> Iterator[Metric]:
    yield CounterMetricFamily("coresched_journal_facts", "Facts written.", value=journal.written)
    yield GaugeMetricFamily("coresched_journal_pending", "Facts not yet on the disk.", value=journal.pending)
    yield _histogram(
        "coresched_journal_commit_seconds", "Writes of a group of facts, to the disk.", journal.commit_s
    )
