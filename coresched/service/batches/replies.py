"""What a call is answered with. It follows from the fact and the state after it, so replay gives it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from coresched.service.batches import facts
from coresched.service.batches.batch import Batch
from coresched.service.batches.effects import Effects
from coresched.service.batches.facts import BatchFact
from coresched.service.batches.reports import STATES, progress
from coresched.service.batches.samples import SampleRecord
from coresched.v1 import batches_pb2 as pb

_SAMPLE_ENDED = pb.FinishSampleResponse()


def heartbeat_s(grace_s: float) -> float:
    return grace_s / 4


def admission(batch: Batch, record: SampleRecord) -> pb.AwaitAdmissionResponse:
    """Of a wait that ended with the admission."""
    return pb.AwaitAdmissionResponse(
        sample=record.name,
        wait_s=record.waited_s,
        admissions=batch.coordinator.times(record.name).admissions,
    )


def grant(record: SampleRecord) -> pb.AcquireEnvironmentResponse:
    """Of a wait that ended with the slot."""
    return pb.AcquireEnvironmentResponse(queue_s=record.waited_s)


def house(record: SampleRecord) -> pb.AcquireResidentResponse:
    """Of a wait that ended with the resident slot."""
    return pb.AcquireResidentResponse(queue_s=record.waited_s)


def reply(fact: BatchFact, effects: Effects) -> Message | None:
    """The answer to the call that caused the fact; None for a wait, which is answered when it ends."""
    build = _REPLIES.get(type(fact))
    return None if build is None else build(fact, effects)


def _session_opened(fact: facts.SessionOpened, effects: Effects) -> Message:
    return pb.OpenBatchResponse(
        session=fact.session,
        opened=fact.opened,
        heartbeat_s=heartbeat_s(fact.grace_s),
        grace_s=fact.grace_s,
        progress=progress(effects.batch, fact.at),
    )


def _samples_submitted(fact: facts.SamplesSubmitted, effects: Effects) -> Message:
    batch = effects.batch
    return pb.SubmitSamplesResponse(
        states=[STATES[batch.state(batch.samples[name])] for name in fact.samples]
    )


def _turn_started(fact: facts.TurnStarted, effects: Effects) -> Message:
    return pb.StartTurnResponse(worker=fact.worker)


def _turn_finished(fact: facts.TurnFinished, effects: Effects) -> Message:
    return pb.FinishTurnResponse(inference_s=effects.batch.samples[fact.sample].spent_s)


def _environment_ended(fact: facts.EnvironmentEnded, effects: Effects) -> Message | None:
    if fact.how in ("dropped", "expired"):
        return None
    spent_s = effects.batch.samples[fact.sample].spent_s
    return pb.ReleaseEnvironmentResponse(environment_s=spent_s, expired=effects.told_expired)


def _resident_ended(fact: facts.ResidentEnded, effects: Effects) -> Message | None:
    if not fact.request_id:  # of a wait whose call is gone
        return None
    return pb.ReleaseResidentResponse(resident_s=effects.batch.samples[fact.sample].resident_spent_s)


def _sample_ended(fact: facts.SampleEnded, effects: Effects) -> Message:
    return _SAMPLE_ENDED


def _session_ended(fact: facts.SessionEnded, effects: Effects) -> Message | None:
    return pb.LeaveBatchResponse(progress=progress(effects.batch, fact.at)) if fact.left else None


def _batch_closed(fact: facts.BatchClosed, effects: Effects) -> Message:
    return pb.CloseBatchResponse(progress=progress(effects.batch, fact.at))


_REPLIES: dict[type, Callable[[Any, Effects], Message | None]] = {
    facts.SessionOpened: _session_opened,
    facts.SamplesSubmitted: _samples_submitted,
    facts.TurnStarted: _turn_started,
    facts.TurnFinished: _turn_finished,
    facts.EnvironmentEnded: _environment_ended,
    facts.ResidentEnded: _resident_ended,
    facts.SampleEnded: _sample_ended,
    facts.SessionEnded: _session_ended,
    facts.BatchClosed: _batch_closed,
}
