"""Spans of samples from a script of facts, kept by the SDK's exporter in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from coresched.service.batches import facts
from coresched.service.batches.servicer import BatchesService
from coresched.service.table import RoutingTable
from coresched.service.telemetry.spans import SampleSpans, configured_provider
from coresched.service.traceparent import _trace
from coresched.v1 import batches_pb2 as pb

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


class Traced:
    """A service whose facts are told to it, and the spans that came of them."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.service = BatchesService(RoutingTable({}))
        parts = self.service.parts
        self.spans_of = SampleSpans(provider, parts.waits)
        parts.recorder.listeners.insert(0, self.spans_of.on_fact)

    def open(self, samples: int, concurrency: int = 2, tenant: str = "t") -> None:
        opened = {
            "tenant": tenant,
            "batch": "b",
            "sample_concurrency": concurrency,
            "environment_concurrency": 1,
            "policy": "caas",
            "band_s": 30.0,
            "bucket_s": 1.0,
        }
        names = [f"sample {number}" for number in range(samples)]
        self.happen(
            (100.0, facts.BatchOpened, opened),
            (100.0, facts.SessionOpened, {"session": "s", "grace_s": 30.0}),
            (100.0, facts.SamplesSubmitted, {"session": "s", "samples": names}),
        )

    def happen(self, *happened: tuple[float, type[facts.Fact], dict[str, Any]]) -> None:
        for at, kind, values in happened:
            fact: Any = kind(at=at, key=1, **values)
            self.service.parts.recorder.record(fact)

    def ended(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())


def seconds(span: ReadableSpan) -> tuple[float, float]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time / 1e9, span.end_time / 1e9


async def test_a_sample_with_its_stages() -> None:
    traced = Traced()
    traced.open(2)
    first, second = {"sample": "sample 0"}, {"sample": "sample 1"}
    traced.happen(
        (101.0, facts.SampleClaimed, {"session": "s", **first}),
        (101.0, facts.SampleClaimed, {"session": "s", **second}),
        (101.0, facts.EnvironmentRequested, {**second, "since": 101.0}),
        (102.0, facts.TurnStarted, {**first, "worker": "w0"}),
        (105.0, facts.TurnFinished, {**first, "failed": True}),
        (105.0, facts.TurnStarted, {**first, "worker": "w1"}),
        (107.0, facts.TurnFinished, {**first, "failed": False}),
        (107.0, facts.EnvironmentRequested, {**first, "since": 107.0}),
        (110.0, facts.EnvironmentEnded, {**second, "how": "completed"}),
        (115.0, facts.EnvironmentEnded, {**first, "how": "completed"}),
        (116.0, facts.SampleEnded, {**first, "withdrawn": False}),
    )
    spans = [span for span in traced.ended() if span.attributes is not None]
    sample = spans[-1]
    assert (sample.name, seconds(sample), sample.parent) == ("sample", (101.0, 116.0), None)
    assert dict(sample.attributes or {}) == {
        "coresched.tenant": "t",
        "coresched.batch": "b",
        "coresched.sample": "sample 0",
        "coresched.outcome": "finished",
    }
    own = [span for span in spans[:-1] if span.parent is not None and span.parent == sample.context]
    assert [(span.name, *seconds(span)) for span in own] == [
        ("admission", 101.0, 101.0),
        ("turn", 102.0, 105.0),
        ("turn", 105.0, 107.0),
        ("environment", 107.0, 115.0),
    ]
    _, failed, turn, environment = own
    assert failed.status.status_code is StatusCode.ERROR
    assert turn.status.status_code is StatusCode.UNSET
    assert dict(failed.attributes or {}) == {
        "coresched.turn": 1,
        "coresched.worker": "w0",
        "coresched.outcome": "failed",
    }
    assert dict(turn.attributes or {})["coresched.turn"] == 1
    assert dict(environment.attributes or {}) == {
        "coresched.turn": 1,
        "coresched.queue_s": 3.0,
        "coresched.outcome": "completed",
    }
    (granted,) = environment.events
    assert (granted.name, granted.timestamp) == ("granted", 110_000_000_000)


async def test_a_resident_slot_is_a_span_around_turns_and_stages() -> None:
    traced = Traced()
    traced.open(2)
    first, second = {"sample": "sample 0"}, {"sample": "sample 1"}
    traced.happen(
        (101.0, facts.SampleClaimed, {"session": "s", **first}),
        (101.0, facts.SampleClaimed, {"session": "s", **second}),
        (102.0, facts.ResidentRequested, {**first, "since": 102.0}),
        (103.0, facts.TurnStarted, {**first, "worker": "w0"}),
        (104.0, facts.TurnFinished, {**first, "failed": False}),
        (105.0, facts.ResidentEnded, {**first, "how": "completed"}),
        (106.0, facts.ResidentRequested, {**second, "since": 106.0}),
        (107.0, facts.SampleEnded, {**second, "withdrawn": True}),
    )
    residents = [span for span in traced.ended() if span.name == "resident"]
    assert [seconds(span) for span in residents] == [(102.0, 105.0), (106.0, 107.0)]
    assert [dict(span.attributes or {}) for span in residents] == [
        {"coresched.queue_s": 0.0, "coresched.outcome": "completed"},
        {"coresched.queue_s": 0.0, "coresched.outcome": "lost"},
    ]
    assert residents[1].status.status_code is StatusCode.ERROR
    turn = next(span for span in traced.ended() if span.name == "turn")
    assert turn.parent == residents[0].parent


async def test_the_parent_is_the_call_that_waits_also_when_another_call_opens_the_sample() -> None:
    traced = Traced()
    traced.open(1, tenant="")
    now = traced.service.parts.clock.now
    traced.happen(
        (101.0, facts.SampleClaimed, {"session": "s", "sample": "sample 0"}),
        (now(), facts.SessionOpened, {"session": "another", "grace_s": 30.0}),
    )

    async def waits_for_any() -> pb.AwaitAdmissionResponse:
        _trace.set({"traceparent": f"00-{TRACE}-{PARENT}-01"})
        call = pb.AwaitAdmissionRequest(request_id="r", session="another")
        return await traced.service.waits.await_admission(call)

    waiting = asyncio.create_task(waits_for_any())
    await asyncio.sleep(0)
    traced.happen((now(), facts.SessionEnded, {"session": "s", "left": False}))
    assert (await waiting).sample == "sample 0"
    traced.happen((now(), facts.SampleEnded, {"sample": "sample 0", "withdrawn": True}))
    returned, again = (span for span in traced.ended() if span.name == "sample")
    assert dict(returned.attributes or {})["coresched.outcome"] == "returned"
    assert returned.parent is None
    assert again.parent is not None
    assert (format(again.parent.trace_id, "032x"), format(again.parent.span_id, "016x")) == (TRACE, PARENT)
    assert again.status.status_code is StatusCode.ERROR
    assert not traced.spans_of._open


@pytest.mark.parametrize(
    "end", [(facts.BatchClosed, {}), (facts.SessionEnded, {"session": "s", "left": True})]
)
async def test_whatever_a_batch_leaves_behind_has_ended(end: tuple[type[facts.Fact], dict[str, Any]]) -> None:
    traced = Traced()
    traced.open(5, concurrency=4)
    samples = [{"sample": f"sample {number}"} for number in range(5)]
    traced.happen(
        *((101.0, facts.SampleClaimed, {"session": "s", **sample}) for sample in samples),
        (102.0, facts.SampleClaimed, {"session": "s", "request_id": "again", **samples[0]}),
        (102.0, facts.TurnStarted, {**samples[1], "worker": ""}),
        (102.0, facts.EnvironmentRequested, {**samples[2], "since": 102.0}),
        (102.0, facts.EnvironmentRequested, {**samples[3], "since": 102.0}),
        (104.0, end[0], end[1]),
    )
    ended = traced.ended()
    outcomes = sorted((span.name, str((span.attributes or {})["coresched.outcome"])) for span in ended)
    assert outcomes == [
        *[("admission", "admitted")] * 4,
        ("admission", "lost"),
        ("environment", "lost"),
        ("environment", "lost"),
        *[("sample", "withdrawn")] * 5,
        ("turn", "lost"),
    ]
    assert {seconds(span)[1] for span in ended if span.name == "sample"} == {104.0}
    assert not traced.spans_of._open


async def test_a_sample_from_before_a_restart_has_a_span_from_then_on() -> None:
    traced = Traced()
    traced.open(1)
    recorder = traced.service.parts.recorder
    recorder.replay(facts.SampleClaimed(at=101.0, key=1, session="s", sample="sample 0"))
    recorder.replay(facts.TurnStarted(at=102.0, key=1, sample="sample 0", worker=""))
    traced.happen(
        (105.0, facts.TurnFinished, {"sample": "sample 0", "failed": False}),
        (106.0, facts.EnvironmentRequested, {"sample": "sample 0", "since": 106.0}),
        (107.0, facts.EnvironmentEnded, {"sample": "sample 0", "how": "expired"}),
        (108.0, facts.EnvironmentEnded, {"sample": "sample 0", "how": "completed"}),
        (109.0, facts.SampleEnded, {"sample": "sample 0", "withdrawn": False}),
    )
    environment, sample = traced.ended()
    assert (environment.name, seconds(environment)) == ("environment", (106.0, 107.0))
    assert dict(environment.attributes or {})["coresched.outcome"] == "expired"
    assert (sample.name, seconds(sample)) == ("sample", (105.0, 109.0))


def test_without_a_configured_provider_there_are_no_spans() -> None:
    assert configured_provider() is None
