"""The calls that move samples on and do not wait."""

from __future__ import annotations

import math
from typing import Literal

from grpc import StatusCode

from coresched.service.batches import facts
from coresched.service.batches.batch import NOT_EXPECTED, Batch
from coresched.service.batches.limits import SAMPLES_PER_CALL
from coresched.service.batches.parts import Parts
from coresched.service.batches.samples import Asked
from coresched.service.refusal import RefusedError, checked_label, shown
from coresched.v1 import batches_pb2 as pb


class SampleCalls:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._access = parts.access

    def submit_samples(self, call: pb.SubmitSamplesRequest) -> pb.SubmitSamplesResponse:
        return self._parts.once(call, self._submit, pb.SubmitSamplesResponse)

    def start_turn(self, call: pb.StartTurnRequest) -> pb.StartTurnResponse:
        return self._parts.once(call, self._start_turn, pb.StartTurnResponse)

    def finish_turn(self, call: pb.FinishTurnRequest) -> pb.FinishTurnResponse:
        return self._parts.once(call, self._finish_turn, pb.FinishTurnResponse)

    def release_environment(self, call: pb.ReleaseEnvironmentRequest) -> pb.ReleaseEnvironmentResponse:
        return self._parts.once(call, self._release_environment, pb.ReleaseEnvironmentResponse)

    def release_resident(self, call: pb.ReleaseResidentRequest) -> pb.ReleaseResidentResponse:
        return self._parts.once(call, self._release_resident, pb.ReleaseResidentResponse)

    def finish_sample(self, call: pb.FinishSampleRequest) -> pb.FinishSampleResponse:
        return self._parts.once(call, self._finish_sample, pb.FinishSampleResponse)

    def _submit(self, call: pb.SubmitSamplesRequest, asked: Asked) -> facts.SamplesSubmitted:
        batch = self._access.session(call.session).batch
        names = list(call.samples)
        self._check_names(batch, names)
        _check_expected(call)
        return facts.SamplesSubmitted(
            at=self._parts.clock.now(),
            request_id=asked.request_id,
            digest=asked.digest,
            key=batch.key,
            session=call.session,
            samples=names,
            expected=list(call.expected) or None,
        )

    def _check_names(self, batch: Batch, names: list[str]) -> None:
        if len(names) > SAMPLES_PER_CALL:
            raise RefusedError(
                StatusCode.RESOURCE_EXHAUSTED,
                "samples",
                f"samples must be at most {SAMPLES_PER_CALL} in a call, got {len(names)}; submit in parts",
            )
        once = set()
        for name in names:
            checked_label("samples", name)
            if name in once:
                raise RefusedError(
                    StatusCode.INVALID_ARGUMENT,
                    "samples",
                    f"samples must name each sample once, got {shown(name)} again",
                )
            once.add(name)
        most = self._parts.limits.samples
        if len(batch.samples) + sum(name not in batch.samples for name in names) > most:
            raise RefusedError(
                StatusCode.RESOURCE_EXHAUSTED,
                "samples",
                f"samples would make the batch larger than {most} samples, the most of one batch",
            )

    def _start_turn(self, call: pb.StartTurnRequest, asked: Asked) -> facts.TurnStarted:
        session = self._access.session(call.session)
        self._access.between_stages(session, call.sample)
        worker = self._parts.flights.start(session, call.sample, call.exclude, asked.request_id)
        return facts.TurnStarted(
            at=self._parts.clock.now(),
            request_id=asked.request_id,
            digest=asked.digest,
            key=session.batch.key,
            sample=call.sample,
            worker=worker,
        )

    def _finish_turn(self, call: pb.FinishTurnRequest, asked: Asked) -> facts.TurnFinished:
        session = self._access.session(call.session)
        self._access.in_state(session, call.sample, "inference")
        return facts.TurnFinished(
            at=self._parts.clock.now(),
            request_id=asked.request_id,
            digest=asked.digest,
            key=session.batch.key,
            sample=call.sample,
            failed=call.failed,
        )

    def _release_environment(
        self, call: pb.ReleaseEnvironmentRequest, asked: Asked
    ) -> facts.EnvironmentEnded:
        session = self._access.session(call.session)
        if self._access.held(session, call.sample).expired_s is None:
            self._access.in_state(session, call.sample, "environment")
        return facts.EnvironmentEnded(
            at=self._parts.clock.now(),
            request_id=asked.request_id,
            digest=asked.digest,
            key=session.batch.key,
            sample=call.sample,
            how="failed" if call.failed else "completed",
        )

    def _release_resident(self, call: pb.ReleaseResidentRequest, asked: Asked) -> facts.ResidentEnded:
        session = self._access.session(call.session)
        record = self._access.with_resident_slot(session, call.sample, in_any_stage=call.failed)
        how: Literal["completed", "failed", "dropped"] = "failed" if call.failed else "completed"
        return facts.ResidentEnded(
            at=self._parts.clock.now(),
            request_id=asked.request_id,
            digest=asked.digest,
            key=session.batch.key,
            sample=call.sample,
            how="dropped" if record.resident_since is None else how,
        )

    def _finish_sample(self, call: pb.FinishSampleRequest, asked: Asked) -> facts.SampleEnded:
        session = self._access.session(call.session)
        if call.withdrawn:
            self._access.held(session, call.sample)
        else:
            self._access.between_stages(session, call.sample)
        return facts.SampleEnded(
            at=self._parts.clock.now(),
            request_id=asked.request_id,
            digest=asked.digest,
            key=session.batch.key,
            sample=call.sample,
            withdrawn=call.withdrawn,
        )


def _check_expected(call: pb.SubmitSamplesRequest) -> None:
    if call.expected and len(call.expected) != len(call.samples):
        raise RefusedError(
            StatusCode.INVALID_ARGUMENT,
            "expected",
            f"expected must have a number for each of {len(call.samples)} samples or none at all, got "
            f"{len(call.expected)}",
        )
    for name, length in zip(call.samples, call.expected, strict=False):
        if not (length == NOT_EXPECTED or 0 <= length < math.inf):
            raise RefusedError(
                StatusCode.INVALID_ARGUMENT,
                "expected",
                "expected must be finite numbers of at least 0, or -1 for none, got "
                f"{length:g} for {shown(name)}",
            )
