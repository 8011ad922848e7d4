"""OpenTelemetry spans: one for each sample, around its admission, turns, stages and resident slots."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from coresched.service.batches import facts
from coresched.service.batches.batch import Batch
from coresched.service.batches.effects import Effects
from coresched.service.batches.facts import BatchFact
from coresched.service.batches.samples import Asked, SampleRecord
from coresched.service.batches.waits import Waits

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider


def configured_provider() -> TracerProvider | None:
    """The tracer provider of this process, if something has configured one that makes spans."""
    # Whoever configures one has imported this; nobody else needs to wait for it.
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    provider: TracerProvider = trace.get_tracer_provider()
    return None if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider) else provider


class _Sample:
    """The spans of one sample that have not ended."""

    __slots__ = ("resident", "span", "stage")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.stage: Span | None = None
        """Its wait for admission, turn or environment stage."""
        self.resident: Span | None = None
        """Its resident slot and the wait for it, around turns and stages."""


class SampleSpans:
    """A listener of the recorder of batches, the first of them: it looks for waits that others then end.

    A sample's span begins with its claim, in the trace of the call that waits for it, and ends when the
    sample does or goes back. Samples claimed before a restart have a span from the next thing that
    happens to them.
    """

    def __init__(self, provider: TracerProvider, waits: Waits) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = provider.get_tracer("coresched")
        self._in_context = trace.set_span_in_context
        self._failed = trace.Status(trace.StatusCode.ERROR)
        self._propagator = TraceContextTextMapPropagator()
        self._waits = waits
        self._open: dict[int, dict[str, _Sample]] = {}

    def on_fact(self, fact: BatchFact, effects: Effects) -> None:
        batch = effects.batch
        if isinstance(fact, facts.SampleClaimed):
            self._claimed(fact, batch)
        elif isinstance(fact, facts.TurnStarted):
            record = batch.samples[fact.sample]
            turn = (record.turns or 0) + 1
            self._begin(
                batch, record, "turn", fact.at, {"coresched.turn": turn, "coresched.worker": fact.worker}
            )
        elif isinstance(fact, facts.EnvironmentRequested):
            record = batch.samples[fact.sample]
            self._begin(batch, record, "environment", fact.since, {"coresched.turn": record.turns or 0})
        elif isinstance(fact, facts.ResidentRequested):
            self._house(batch, batch.samples[fact.sample], fact.since)
        elif isinstance(fact, facts.ResidentEnded):
            self._unhouse(self._sample(batch, batch.samples[fact.sample], fact.at), fact.at, fact.how)
        elif isinstance(fact, facts.TurnFinished):
            self._end(batch, batch.samples[fact.sample], fact.at, "failed" if fact.failed else "completed")
        elif isinstance(fact, facts.EnvironmentEnded) and not effects.told_expired:
            self._end(batch, batch.samples[fact.sample], fact.at, fact.how)
        for record, _ in effects.admitted[effects.told_again :]:
            self._end(batch, record, fact.at, "admitted")
        for record, _ in effects.granted:
            stage = self._sample(batch, record, fact.at).stage
            if stage is not None:
                _granted(stage, record, fact.at)
        for record, _ in effects.housed:
            resident = self._sample(batch, record, fact.at).resident
            if resident is not None:
                _granted(resident, record, fact.at)
        if isinstance(fact, facts.SampleEnded | facts.SampleGivenBack):
            self._let_go(batch, batch.samples[fact.sample], fact.at)
        elif isinstance(fact, facts.SessionEnded | facts.BatchClosed):
            for name in list(self._open.get(batch.key, ())):
                if batch.samples[name].holder is None:
                    self._let_go(batch, batch.samples[name], fact.at)

    def _claimed(self, fact: facts.SampleClaimed, batch: Batch) -> None:
        if fact.sample in self._open.get(batch.key, ()):
            return  # another call of its session waits for it now
        wait = self._waits.find(batch.tenant, Asked(fact.request_id, fact.digest))
        record = batch.samples[fact.sample]
        self._start(batch, record, fact.at, {} if wait is None else wait.trace)
        self._begin(batch, record, "admission", fact.at, {})

    def _start(self, batch: Batch, record: SampleRecord, at: float, trace: Mapping[str, str]) -> _Sample:
        span = self._tracer.start_span(
            "sample",
            context=self._propagator.extract(trace),
            start_time=_ns(at),
            attributes={
                "coresched.tenant": batch.tenant,
                "coresched.batch": batch.name,
                "coresched.sample": record.name,
            },
        )
        sample = self._open.setdefault(batch.key, {})[record.name] = _Sample(span)
        return sample

    def _sample(self, batch: Batch, record: SampleRecord, at: float) -> _Sample:
        found = self._open.get(batch.key, {}).get(record.name)
        return self._start(batch, record, at, {}) if found is None else found

    def _begin(
        self, batch: Batch, record: SampleRecord, name: str, at: float, attributes: dict[str, str | int]
    ) -> None:
        sample = self._sample(batch, record, at)
        context = self._in_context(sample.span)
        sample.stage = self._tracer.start_span(
            name, context=context, start_time=_ns(at), attributes=attributes
        )

    def _end(self, batch: Batch, record: SampleRecord, at: float, outcome: str) -> None:
        """End the stage, if it was seen to begin."""
        sample = self._sample(batch, record, at)
        if sample.stage is not None:
            sample.stage.set_attribute("coresched.outcome", outcome)
            if outcome not in ("completed", "admitted"):
                sample.stage.set_status(self._failed)
            sample.stage.end(_ns(at))
            sample.stage = None

    def _house(self, batch: Batch, record: SampleRecord, since: float) -> None:
        sample = self._sample(batch, record, since)
        context = self._in_context(sample.span)
        sample.resident = self._tracer.start_span("resident", context=context, start_time=_ns(since))

    def _unhouse(self, sample: _Sample, at: float, outcome: str) -> None:
        """End the span of the resident slot, if it was seen to begin."""
        if sample.resident is not None:
            sample.resident.set_attribute("coresched.outcome", outcome)
            if outcome != "completed":
                sample.resident.set_status(self._failed)
            sample.resident.end(_ns(at))
            sample.resident = None

    def _let_go(self, batch: Batch, record: SampleRecord, at: float) -> None:
        self._end(batch, record, at, "lost")
        sample = self._open[batch.key].pop(record.name)
        if not self._open[batch.key]:
            del self._open[batch.key]
        state = batch.state(record)
        self._unhouse(sample, at, "completed" if state == "finished" else "lost")
        sample.span.set_attribute("coresched.outcome", state)
        if state != "finished":
            sample.span.set_status(self._failed)
        sample.span.end(_ns(at))


def _granted(span: Span, record: SampleRecord, at: float) -> None:
    span.set_attribute("coresched.queue_s", record.waited_s)
    span.add_event("granted", timestamp=_ns(at))


def _ns(at: float) -> int:
    return int(at * 1e9)
