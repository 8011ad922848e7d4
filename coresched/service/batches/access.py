"""What a call names, found or refused: its batch, its session, a sample in a state that allows it."""

from __future__ import annotations

from grpc import StatusCode

from coresched.batch.records import IN_WORDS, State
from coresched.service.batches.batch import Batch
from coresched.service.batches.ledger import Ledger
from coresched.service.batches.samples import SampleRecord
from coresched.service.batches.sessions import Session
from coresched.service.batches.waits import session_ended
from coresched.service.identity import current_tenant
from coresched.service.refusal import RefusedError, checked_label, shown


class Access:
    """Look-ups for the tenant of the call being served, to which what others have is not known."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def session(self, name: str) -> Session:
        """A session that lives. Refused: INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION if it has ended."""
        checked_label("session", name)
        session = self._ledger.sessions.get(name)
        if session is None or session.batch.tenant != current_tenant():
            raise RefusedError(
                StatusCode.NOT_FOUND, "session", f"session must be known, got {shown(name)}, which is not"
            )
        if session.ended:
            raise session_ended(session)
        return session

    def batch(self, name: str) -> Batch:
        """A batch that is open, or closed and remembered. Refused: INVALID_ARGUMENT, NOT_FOUND."""
        checked_label("batch", name)
        batch = self._ledger.named(current_tenant(), name)
        if batch is None:
            raise RefusedError(
                StatusCode.NOT_FOUND, "batch", f"batch must be known, got {shown(name)}, which is not"
            )
        return batch

    def open_batch(self, name: str) -> Batch:
        """Refused as `batch` is, and with FAILED_PRECONDITION if it was closed."""
        batch = self.batch(name)
        if batch.closed_at is not None:
            raise RefusedError(StatusCode.FAILED_PRECONDITION, "batch", f"batch {shown(name)} was closed")
        return batch

    def sample(self, session: Session, name: str) -> SampleRecord:
        """A sample of the session's batch. Refused: INVALID_ARGUMENT, NOT_FOUND."""
        record = session.batch.samples.get(name)
        if record is None:
            checked_label("sample", name)
            raise RefusedError(
                StatusCode.NOT_FOUND,
                "sample",
                f"sample must have been submitted to the batch, got {shown(name)}, which was not",
            )
        return record

    def held(self, session: Session, name: str) -> SampleRecord:
        """A sample that the session holds. Refused as `sample` is, and with FAILED_PRECONDITION."""
        record = session.held.get(name)
        if record is None:
            record = self.sample(session, name)
            raise RefusedError(
                StatusCode.FAILED_PRECONDITION,
                "sample",
                f"sample {shown(name)} must be held by this session, it {_whose(session.batch, record)}",
            )
        return record

    def between_stages(self, session: Session, name: str) -> SampleRecord:
        return self.in_state(session, name, "admitted")

    def without_resident_slot(self, session: Session, name: str) -> SampleRecord:
        """A sample between stages that may ask for a resident slot. Refused as `in_state` is."""
        record = self.between_stages(session, name)
        if record.resident_since is not None:
            raise RefusedError(
                StatusCode.FAILED_PRECONDITION,
                "sample",
                f"sample {shown(name)} holds a resident slot already",
            )
        return record

    def with_resident_slot(self, session: Session, name: str, *, in_any_stage: bool) -> SampleRecord:
        """A sample that holds a resident slot or, if it may be in any stage, waits for it. As `held` else."""
        record = self.held(session, name)
        state = session.batch.coordinator.state(name)
        if record.resident_since is None and not (in_any_stage and state == "resident_queued"):
            raise RefusedError(
                StatusCode.FAILED_PRECONDITION,
                "sample",
                f"sample {shown(name)} must hold a resident slot, it has none and is {IN_WORDS[state]}",
            )
        return record if in_any_stage else self.between_stages(session, name)

    def in_state(self, session: Session, name: str, needed: State) -> SampleRecord:
        """A sample that the session holds, in this state. Refused as `held` is, in other states too."""
        record = self.held(session, name)
        state = session.batch.coordinator.state(name)
        if state != needed:
            raise RefusedError(
                StatusCode.FAILED_PRECONDITION,
                "sample",
                f"sample {shown(name)} must be {IN_WORDS[needed]}, it is {IN_WORDS[state]}",
            )
        return record

    def claimable(self, session: Session, name: str) -> SampleRecord:
        """A sample that is open, or that the session holds and began nothing with. Refused as `held` is."""
        record = self.sample(session, name)
        if record.open or (record.holder is session and not record.begun):
            return record
        raise RefusedError(
            StatusCode.FAILED_PRECONDITION,
            "sample",
            f"sample {shown(name)} must be open, it {_whose(session.batch, record)}",
        )


def _whose(batch: Batch, record: SampleRecord) -> str:
    if record.open:
        return "is open"
    if record.holder is not None:
        # To the holder this is said of a sample that it works on already.
        state = IN_WORDS[batch.state(record)]
        return f"is held by a session already, and {state}"
    return f"is {IN_WORDS[batch.state(record)]}"
