"""The metrics of each batch, from what the batch counts anyway."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from coresched.service.batches.batch import Batch
from coresched.service.batches.chains import DEPTHS
from coresched.service.batches.ledger import Ledger
from coresched.service.batches.reports import progress

MOST_BATCHES = 200
"""Most batches with series of their own: open ones first, of either the newest."""

_OF_BATCH = ("tenant", "batch")


def batch_families(ledger: Ledger, now: float) -> Iterator[Metric]:
    """The families with a series for each batch shown, and the number of batches there are."""
    # A name may be used again once its batch was closed; the batch that has it now has the series.
    known = [batch for batch in ledger.batches.values() if ledger.named(batch.tenant, batch.name) is batch]
    still = [batch for batch in known if batch.closed_at is None]
    closed = [batch for batch in known if batch.closed_at is not None]
    number = GaugeMetricFamily(
        "coresched_batches", "Batches that are open, or closed and can still be reported.", labels=("state",)
    )
    number.add_metric(("open",), len(still))
    number.add_metric(("closed",), len(closed))
    yield number
    shown = [*reversed(still), *reversed(closed)][:MOST_BATCHES]
    yield from _families(shown, now)


def _families(batches: list[Batch], now: float) -> Iterator[Metric]:
    samples = _gauge("samples", "Samples by where they stand.", "state")
    sessions = _gauge("sessions", "Sessions that live.")
    sample_slots = _gauge("sample_slots", "C_S, samples admitted and unfinished at a time.")
    environment_slots = _gauge("environment_slots", "C_E, environment stages at a time; none without a cap.")
    resident_slots = _gauge(
        "resident_slots", "C_R, samples with a resident slot at a time; none without a cap."
    )
    residents = _gauge("residents", "Samples that hold a resident slot, in whatever state.")
    oldest = _gauge("environment_oldest_wait_seconds", "Longest that a queued environment stage has waited.")
    by_turns = _gauge("admitted_by_turns", "Admitted samples by turns completed since admission.", "turns")
    elapsed = _gauge("elapsed_seconds", "Seconds since the batch was opened, until it was closed.")
    makespan = _gauge("makespan_seconds", "First admission to the latest completion so far.")
    turns = _counter("turns", "Inference turns completed.")
    stages = _counter("environment_stages", "Environment stages completed.")
    readmissions = _counter("readmissions", "Admissions of samples that had been admitted before.")
    seconds = _counter("seconds", "Time of all samples by what it was spent on, when that ended.", "spent")
    for batch in batches:
        of = (batch.tenant, batch.name)
        now_at = progress(batch, now)
        between = now_at.admitted - now_at.inference - now_at.environment_queued - now_at.environment_running
        between -= now_at.resident_queued
        for state, count in (
            ("open", now_at.open),
            ("waiting", now_at.waiting),
            ("admitted", between),
            ("inference", now_at.inference),
            ("queued", now_at.environment_queued),
            ("environment", now_at.environment_running),
            ("resident_queued", now_at.resident_queued),
            ("finished", now_at.finished),
            ("withdrawn", now_at.withdrawn),
        ):
            samples.add_metric((*of, state), count)
        sessions.add_metric(of, now_at.sessions)
        sample_slots.add_metric(of, now_at.options.sample_concurrency)
        if now_at.options.HasField("environment_concurrency"):
            environment_slots.add_metric(of, now_at.options.environment_concurrency)
        if now_at.options.HasField("resident_concurrency"):
            resident_slots.add_metric(of, now_at.options.resident_concurrency)
        residents.add_metric(of, now_at.resident)
        oldest.add_metric(of, now_at.oldest_environment_wait_s)
        for name, count in zip(DEPTHS, now_at.admitted_by_turns, strict=True):
            by_turns.add_metric((*of, name), count)
        elapsed.add_metric(of, now_at.elapsed_s)
        if now_at.HasField("makespan_s"):
            makespan.add_metric(of, now_at.makespan_s)
        turns.add_metric(of, now_at.turns)
        stages.add_metric(of, now_at.environment_stages)
        readmissions.add_metric(of, now_at.readmissions)
        for spent, total in (
            ("admission_wait", now_at.admission_wait_s),
            ("inference", now_at.inference_s),
            ("failed_inference", now_at.failed_inference_s),
            ("environment_queue", now_at.environment_queue_s),
            ("environment", now_at.environment_s),
            ("resident_wait", now_at.resident_wait_s),
            ("resident", now_at.resident_s),
        ):
            seconds.add_metric((*of, spent), total)
    yield from (samples, sessions, sample_slots, environment_slots, oldest, by_turns, elapsed, makespan)
    yield from (resident_slots, residents, turns, stages, readmissions, seconds)


def _gauge(name: str, about: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"coresched_batch_{name}", about, labels=(*_OF_BATCH, *labels))


def _counter(name: str, about: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"coresched_batch_{name}", about, labels=(*_OF_BATCH, *labels))
