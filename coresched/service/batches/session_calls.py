"""The calls that begin, show and end sessions and batches."""

from __future__ import annotations

import math
import secrets

from grpc import StatusCode

from coresched.service.batches import facts
from coresched.service.batches.batch import Batch
from coresched.service.batches.limits import LONGEST_GRACE_S
from coresched.service.batches.options import Options
from coresched.service.batches.parts import Parts
from coresched.service.batches.reports import progress
from coresched.service.batches.samples import Asked
from coresched.service.identity import current_tenant
from coresched.service.refusal import RefusedError, checked_label, shown
from coresched.v1 import batches_pb2 as pb

USUAL_GRACE_S = 30.0


class SessionCalls:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def open_batch(self, call: pb.OpenBatchRequest) -> pb.OpenBatchResponse:
        return self._parts.once(call, self._open, pb.OpenBatchResponse)

    def heartbeat(self, call: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        parts = self._parts
        session = parts.access.session(call.session)
        parts.expiry.saw(session.name, session.batch.tenant)
        return pb.HeartbeatResponse(progress=progress(session.batch, parts.clock.now()))

    def leave_batch(self, call: pb.LeaveBatchRequest) -> pb.LeaveBatchResponse:
        return self._parts.once(call, self._leave, pb.LeaveBatchResponse)

    def close_batch(self, call: pb.CloseBatchRequest) -> pb.CloseBatchResponse:
        return self._parts.once(call, self._close, pb.CloseBatchResponse)

    def _open(self, call: pb.OpenBatchRequest, asked: Asked) -> facts.SessionOpened:
        parts = self._parts
        name = checked_label("batch", call.batch)
        options = Options.asked(call.options)
        grace_s = _checked_grace(call)
        tenant = current_tenant()
        batch = parts.ledger.named(tenant, name)
        opened = batch is None or batch.closed_at is not None
        if batch is None or opened:
            key = self._open_new(tenant, name, options)
        else:
            self._check_joinable(batch, options)
            key = batch.key
        return facts.SessionOpened(
            at=parts.clock.now(),
            request_id=asked.request_id,
            digest=asked.digest,
            key=key,
            session=secrets.token_urlsafe(16),
            grace_s=grace_s,
            opened=opened,
        )

    def _open_new(self, tenant: str, name: str, options: Options) -> int:
        parts = self._parts
        self._make_room(tenant, name)
        key = parts.ledger.next_key
        parts.recorder.record(
            facts.BatchOpened(
                at=parts.clock.now(),
                key=key,
                tenant=tenant,
                batch=name,
                sample_concurrency=options.sample_concurrency,
                environment_concurrency=options.environment_concurrency,
                policy=options.policy,
                band_s=options.band_s,
                bucket_s=options.bucket_s,
                resident_concurrency=options.resident_concurrency,
                admission_policy=options.admission_policy,
            )
        )
        return key

    def _make_room(self, tenant: str, name: str) -> None:
        """Close the batches that are abandoned for the longest, as many as it takes for one more.

        Not before: a harness that crashed may be started again and go on with its batch. Refused if too few
        are abandoned, and then none is closed: those in use or kept open are closed by their users.
        """
        parts = self._parts
        most = parts.limits.open_batches
        excess = parts.ledger.count_open(tenant) - most + 1
        if excess <= 0:
            return
        abandoned = parts.ledger.abandoned_batches(tenant)
        if len(abandoned) < excess:
            raise RefusedError(
                StatusCode.RESOURCE_EXHAUSTED,
                "batch",
                f"batch {shown(name)} would be one more than {most} open batches, the most of "
                "--max-open-batches; close another first, with `coresched batch close NAME` (one whose "
                "processes died makes room by itself after their grace period)",
            )
        for batch in abandoned[:excess]:
            parts.recorder.record(facts.BatchClosed(at=parts.clock.now(), key=batch.key, abandoned=True))

    def _check_joinable(self, batch: Batch, options: Options) -> None:
        difference = batch.options.difference(options)
        if difference:
            raise RefusedError(
                StatusCode.FAILED_PRECONDITION,
                "options",
                f"options must be those of the open batch {shown(batch.name)}, which has {difference}; "
                "ask for the same, take another name, or end it for good with `coresched batch close NAME`",
            )
        most = self._parts.limits.sessions
        if len(batch.sessions) >= most:
            raise RefusedError(
                StatusCode.RESOURCE_EXHAUSTED,
                "batch",
                f"batch {shown(batch.name)} has {most} sessions already, the most of one batch",
            )

    def _leave(self, call: pb.LeaveBatchRequest, asked: Asked) -> facts.SessionEnded:
        session = self._parts.access.session(call.session)
        return facts.SessionEnded(
            at=self._parts.clock.now(),
            request_id=asked.request_id,
            digest=asked.digest,
            key=session.batch.key,
            session=session.name,
            left=True,
            keep_open=call.keep_open,
        )

    def _close(self, call: pb.CloseBatchRequest, asked: Asked) -> facts.BatchClosed:
        batch = self._parts.access.open_batch(call.batch)
        return facts.BatchClosed(
            at=self._parts.clock.now(), request_id=asked.request_id, digest=asked.digest, key=batch.key
        )


def _checked_grace(call: pb.OpenBatchRequest) -> float:
    grace_s = call.grace_s if call.HasField("grace_s") else USUAL_GRACE_S
    if not (math.isfinite(grace_s) and 1 <= grace_s <= LONGEST_GRACE_S):
        raise RefusedError(
            StatusCode.INVALID_ARGUMENT,
            "grace_s",
            f"grace_s must be from 1 to {LONGEST_GRACE_S:g} seconds, got {grace_s:g}",
        )
    return grace_s
