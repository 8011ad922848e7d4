"""The calls that wait: for the admission of a sample, for an environment slot, for a resident slot."""

from __future__ import annotations

from typing import cast

from coresched.core.checks import check_positive
from coresched.service.answers import refuse_other_call
from coresched.service.batches import facts
from coresched.service.batches.batch import Batch
from coresched.service.batches.effects import Effects
from coresched.service.batches.facts import BatchFact
from coresched.service.batches.parts import Parts
from coresched.service.batches.samples import Asked, SampleRecord
from coresched.service.batches.waits import Wait
from coresched.service.identity import current_tenant
from coresched.service.refusal import refuse_argument
from coresched.v1 import batches_pb2 as pb

_NONE_LEFT = pb.AwaitAdmissionResponse()


class WaitCalls:
    """A request that is sent again attaches to its wait; the wait lives as long as one of its calls.

    A session that asks with another request for a sample that it waits for takes the wait over, and gets one
    that was admitted and with which nothing began at once: so a process that lost a request can go on. Two of
    its tasks must not ask for one sample, then; as soon as a stage began, the second is refused.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._serving = False
        parts.recorder.listeners.append(self._on_fact)

    async def await_admission(self, call: pb.AwaitAdmissionRequest) -> pb.AwaitAdmissionResponse:
        parts = self._parts
        asked, answer = parts.answered(call)
        if answer is None:
            wait = parts.waits.find(current_tenant(), asked)
            parts.waits.check_room(current_tenant())
            if wait is None:
                wait = self._begin_admission(call, asked)
            if wait is None:
                return _NONE_LEFT
            answer = await parts.waits.attend(wait)
        return cast(pb.AwaitAdmissionResponse, answer)

    async def acquire_environment(self, call: pb.AcquireEnvironmentRequest) -> pb.AcquireEnvironmentResponse:
        parts = self._parts
        asked, answer = parts.answered(call)
        if answer is None:
            wait = parts.waits.find(current_tenant(), asked)
            parts.waits.check_room(current_tenant())
            if wait is None:
                wait = self._begin_environment(call, asked)
            answer = await parts.waits.attend(wait)
        return cast(pb.AcquireEnvironmentResponse, answer)

    async def acquire_resident(self, call: pb.AcquireResidentRequest) -> pb.AcquireResidentResponse:
        parts = self._parts
        asked, answer = parts.answered(call)
        if answer is None:
            wait = parts.waits.find(current_tenant(), asked)
            parts.waits.check_room(current_tenant())
            if wait is None:
                wait = self._begin_resident(call, asked)
            answer = await parts.waits.attend(wait)
        return cast(pb.AcquireResidentResponse, answer)

    def _begin_admission(self, call: pb.AwaitAdmissionRequest, asked: Asked) -> Wait | None:
        """The wait, which may have ended already; None if every sample of the batch has ended."""
        parts = self._parts
        session = parts.access.session(call.session)
        if call.HasField("sample"):
            record: SampleRecord | None = parts.access.claimable(session, call.sample)
        else:
            record = session.batch.open.first()
            if record is None and session.batch.complete:
                return None
        wait = parts.waits.begin(asked, session, record)
        if record is not None:
            self._claim(wait, record)
        return wait

    def _begin_environment(self, call: pb.AcquireEnvironmentRequest, asked: Asked) -> Wait:
        parts = self._parts
        session = parts.access.session(call.session)
        max_s = None
        if call.HasField("max_s"):
            try:
                max_s = check_positive(call.max_s, "max_s")
            except ValueError as error:
                refuse_argument("max_s", error)
        record = parts.access.between_stages(session, call.sample)
        now = parts.clock.now()
        since = _since(record, asked, now)
        wait = parts.waits.begin(asked, session, record)
        parts.recorder.record(
            facts.EnvironmentRequested(
                at=now,
                request_id=asked.request_id,
                digest=asked.digest,
                key=session.batch.key,
                sample=record.name,
                since=since,
                max_s=max_s,
            )
        )
        return wait

    def _begin_resident(self, call: pb.AcquireResidentRequest, asked: Asked) -> Wait:
        parts = self._parts
        session = parts.access.session(call.session)
        record = parts.access.without_resident_slot(session, call.sample)
        now = parts.clock.now()
        since = _since(record, asked, now)
        wait = parts.waits.begin(asked, session, record)
        parts.recorder.record(
            facts.ResidentRequested(
                at=now,
                request_id=asked.request_id,
                digest=asked.digest,
                key=session.batch.key,
                sample=record.name,
                since=since,
            )
        )
        return wait

    def _claim(self, wait: Wait, record: SampleRecord) -> None:
        self._parts.recorder.record(
            facts.SampleClaimed(
                at=self._parts.clock.now(),
                request_id=wait.asked.request_id,
                digest=wait.asked.digest,
                key=wait.session.batch.key,
                session=wait.session.name,
                sample=record.name,
            )
        )

    def _on_fact(self, fact: BatchFact, effects: Effects) -> None:
        """Open samples go to those who wait for any, first come, first served."""
        # A claim is a fact too: the loop that made it goes on, however many there are.
        if not self._serving:
            self._serving = True
            try:
                self._serve(effects.batch)
            finally:
                self._serving = False

    def _serve(self, batch: Batch) -> None:
        waits = self._parts.waits
        while (wait := waits.first_idle(batch)) is not None:
            record = batch.open.first()
            if record is not None:
                waits.claim(wait, record)
                self._claim(wait, record)
            elif batch.complete:
                waits.end(wait, _NONE_LEFT)
            else:
                return


def _since(record: SampleRecord, asked: Asked, now: float) -> float:
    """When the wait for a slot began: earlier than now if this call was given up and is sent again.

    Refused, INVALID_ARGUMENT: another call has its id.
    """
    dropped = record.dropped
    if dropped is None or dropped.asked.request_id != asked.request_id:
        return now
    if dropped.asked.digest != asked.digest:
        refuse_other_call(asked.request_id)
    return dropped.since
