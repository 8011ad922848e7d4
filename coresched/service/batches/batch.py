"""One batch of the ledger: its samples, sessions and coordinator, and every step that changes them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import Final, Literal

from coresched.batch.coordinator import Coordinator
from coresched.batch.records import State
from coresched.service.batches.chains import Chains
from coresched.service.batches.effects import Effects
from coresched.service.batches.facts import BatchOpened
from coresched.service.batches.options import Options
from coresched.service.batches.samples import Asked, Dropped, OpenSamples, SampleRecord
from coresched.service.batches.sessions import Session

NOT_EXPECTED: Final = -1.0

ENDED: tuple[State, ...] = ("finished", "withdrawn")


@dataclass(slots=True)
class Totals:
    """Sums over the batch, attempts that were lost included; seconds."""

    turns: int = 0
    environment_stages: int = 0
    readmissions: int = 0
    admission_wait_s: float = 0.0
    inference_s: float = 0.0
    failed_inference_s: float = 0.0
    environment_queue_s: float = 0.0
    environment_s: float = 0.0
    resident_wait_s: float = 0.0
    resident_s: float = 0.0
    first_admission_at: float | None = None
    last_completion_at: float | None = None


class Batch:
    """State and steps. Nothing is checked here: the steps are facts, or about to be."""

    def __init__(self, fact: BatchOpened) -> None:
        self.key = fact.key
        self.tenant = fact.tenant
        self.name = fact.batch
        self.options = Options.of(fact)
        self.opened_at = fact.at
        self.closed_at: float | None = None
        self.abandoned_at: float | None = fact.at
        """When the last session ended by silence; None while there is one, and once it is to be kept."""
        self.coordinator = Coordinator(
            self.options.sample_concurrency,
            self.options.environment_concurrency,
            environment_policy=self.options.policy,
            band_s=self.options.band_s,
            bucket_s=self.options.bucket_s,
            resident_concurrency=self.options.resident_concurrency,
            admission_policy=self.options.admission_policy,
        )
        self.samples: dict[str, SampleRecord] = {}
        self.in_order: list[SampleRecord] = []
        self.open = OpenSamples(self.options.admission_policy)
        self.sessions: dict[str, Session] = {}
        self.totals = Totals()
        self.chains = Chains()

    def state(self, record: SampleRecord) -> State:
        """The coordinator's, or "returned" for a sample that was never claimed and is open."""
        if record.open:
            return "returned"
        # Once the batch was closed, those never claimed are unknown to the coordinator and withdrawn.
        return self.coordinator.state(record.name) if record.name in self.coordinator else "withdrawn"

    @property
    def withdrawn(self) -> int:
        never_claimed = len(self.in_order) - len(self.coordinator) if self.closed_at is not None else 0
        return self.coordinator.withdrawn + never_claimed

    @property
    def complete(self) -> bool:
        """Whether there are samples and all have ended."""
        return 0 < len(self.in_order) == self.coordinator.finished + self.withdrawn

    def submit(self, names: list[str], lengths: list[float] | None, now: float) -> None:
        """``lengths`` as in SamplesSubmitted."""
        for name, length in zip(names, lengths or repeat(NOT_EXPECTED), strict=lengths is not None):
            if name not in self.samples:
                expected = length if length >= 0 else None
                record = SampleRecord(name, len(self.in_order), now, expected=expected)
                self.samples[name] = record
                self.in_order.append(record)
                self.open.add(record)

    def claim(
        self, record: SampleRecord, session: Session, asked: Asked, now: float, effects: Effects
    ) -> None:
        if record.holder is session:
            if self.coordinator.state(record.name) == "waiting":
                record.asked = asked
            else:
                effects.admitted.append((record, asked))
                effects.told_again = True
            return
        self.open.take(record)
        session.held[record.name] = record
        record.holder = session
        record.asked = asked
        record.since = now
        record.begun = False
        self.coordinator.submit(record.name, now, record.expected)

    def give_back(self, record: SampleRecord, now: float, effects: Effects) -> None:
        """Open the sample again, whatever it holds or waits for."""
        self._cut(record, now, effects)
        self.coordinator.put_back(record.name, now)
        self._let_go(record)
        self.open.put_back(record)

    def start_turn(self, record: SampleRecord, worker: str, now: float) -> None:
        self.coordinator.start_inference(record.name, now)
        self.chains.inference += 1
        record.since = now
        record.begun = True
        record.worker = worker
        record.dropped = None

    def finish_turn(self, record: SampleRecord, failed: bool, now: float, effects: Effects) -> None:
        record.spent_s = now - record.since
        self.chains.inference -= 1
        if failed:
            self.coordinator.cancel_inference(record.name, now)
            self.totals.failed_inference_s += record.spent_s
        else:
            self.coordinator.finish_inference(record.name, now)
            self.totals.inference_s += record.spent_s
            self.totals.turns += 1
            self.chains.advanced(record)
        record.worker = ""
        effects.turns_ended.append(record)

    def request_environment(
        self, record: SampleRecord, max_s: float | None, asked: Asked, since: float, now: float
    ) -> None:
        self.coordinator.request_environment(record.name, now, since)
        record.since = since
        self.chains.queued(record)
        record.begun = True
        record.asked = asked
        record.max_s = max_s
        record.expired_s = None
        record.dropped = None

    def end_environment(
        self,
        record: SampleRecord,
        how: Literal["completed", "failed", "dropped", "expired"],
        now: float,
        effects: Effects,
    ) -> None:
        if how in ("completed", "failed") and record.expired_s is not None:
            record.spent_s = record.expired_s
            record.expired_s = None
            effects.told_expired = True
            return
        spent = now - record.since
        if how == "dropped":
            self.coordinator.cancel_environment(record.name, now)
            self.chains.unqueued(record)
            self.totals.environment_queue_s += spent
            if record.asked is not None:
                record.dropped = Dropped(record.asked, record.since)
            effects.waits_ended.append(record)
        else:
            record.spent_s = spent
            self.totals.environment_s += spent
            if how == "completed":
                self.coordinator.finish_environment(record.name, now)
                self.totals.environment_stages += 1
            else:
                self.coordinator.cancel_environment(record.name, now)
            if how == "expired":
                record.expired_s = spent
        record.asked = None
        record.max_s = None

    def request_resident(self, record: SampleRecord, asked: Asked, since: float, now: float) -> None:
        self.coordinator.request_resident(record.name, now, since)
        record.since = since
        record.begun = True
        record.asked = asked
        record.dropped = None

    def end_resident(
        self,
        record: SampleRecord,
        how: Literal["completed", "failed", "dropped"],
        now: float,
        effects: Effects,
    ) -> None:
        if how == "dropped":
            self.coordinator.cancel_resident(record.name, now)
            self.totals.resident_wait_s += now - record.since
            record.resident_spent_s = 0.0
            if record.asked is not None:
                record.dropped = Dropped(record.asked, record.since)
            record.asked = None
            effects.waits_ended.append(record)
            return
        if how == "completed":
            self.coordinator.finish_resident(record.name, now)
        else:
            self.coordinator.cancel_resident(record.name, now)
        self._unhouse(record, now)

    def end_sample(self, record: SampleRecord, withdrawn: bool, now: float, effects: Effects) -> None:
        if withdrawn:
            self._cut(record, now, effects)
            self.coordinator.withdraw(record.name, now)
        else:
            self.coordinator.finish(record.name, now)
            self.totals.last_completion_at = now
            self._unhouse(record, now)
        self._let_go(record)

    def join(self, session: Session) -> None:
        self.sessions[session.name] = session
        self.abandoned_at = None

    def end_session(self, session: Session, left: bool, now: float, effects: Effects) -> None:
        """What it holds is withdrawn if it left, and else goes back."""
        for record in list(session.held.values()):
            if left:
                self.end_sample(record, True, now, effects)
            else:
                self.give_back(record, now, effects)
        self._part(session, "it left the batch" if left else "it was silent for its grace period", effects)
        if not left and not self.sessions:
            self.abandoned_at = now

    def close(self, now: float, effects: Effects) -> None:
        for record in self.in_order:
            if record.name in self.coordinator and self.coordinator.state(record.name) not in ENDED:
                self.end_sample(record, True, now, effects)
            if record.open:
                self.open.take(record)
        for session in list(self.sessions.values()):
            self._part(session, "its batch was closed", effects)
        self.closed_at = now
        self.abandoned_at = None
        effects.closed = True

    def settle(self, now: float, effects: Effects) -> None:
        """Admit and dispatch what the slots allow; to be called after every step."""
        totals = self.totals
        for name in self.coordinator.admit(now):
            record = self.samples[name]
            record.waited_s = now - record.since
            self.chains.admitted(record)
            totals.admission_wait_s += record.waited_s
            totals.readmissions += self.coordinator.times(name).admissions > 1
            if totals.first_admission_at is None:
                totals.first_admission_at = now
            effects.admitted.append((record, record.asked))
            record.asked = None
        for name in self.coordinator.dispatch(now):
            record = self.samples[name]
            self.chains.unqueued(record)
            record.waited_s = now - record.since
            record.since = now
            totals.environment_queue_s += record.waited_s
            effects.granted.append((record, record.asked))
            record.asked = None
        for name in self.coordinator.grant_residents(now):
            record = self.samples[name]
            record.waited_s = now - record.since
            record.resident_since = now
            totals.resident_wait_s += record.waited_s
            effects.housed.append((record, record.asked))
            record.asked = None

    def _cut(self, record: SampleRecord, now: float, effects: Effects) -> None:
        """Account for the stage or wait that ends because the sample does."""
        spent = now - record.since
        state = self.coordinator.state(record.name)
        if state == "waiting":
            self.totals.admission_wait_s += spent
            effects.waits_ended.append(record)
        elif state == "inference":
            self.chains.inference -= 1
            self.totals.failed_inference_s += spent
            effects.turns_ended.append(record)
        elif state == "queued":
            self.chains.unqueued(record)
            self.totals.environment_queue_s += spent
            effects.waits_ended.append(record)
        elif state == "environment":
            self.totals.environment_s += spent
        elif state == "resident_queued":
            self.totals.resident_wait_s += spent
            effects.waits_ended.append(record)
        self._unhouse(record, now)

    def _unhouse(self, record: SampleRecord, now: float) -> None:
        """Account for the resident slot, if there is one, that is given back."""
        if record.resident_since is not None:
            record.resident_spent_s = now - record.resident_since
            record.resident_since = None
            self.totals.resident_s += record.resident_spent_s

    def _let_go(self, record: SampleRecord) -> None:
        self.chains.let_go(record)
        if record.holder is not None:
            del record.holder.held[record.name]
        record.holder = None
        record.asked = None
        record.worker = ""
        record.max_s = None
        record.expired_s = None
        record.dropped = None

    def _part(self, session: Session, ended: str, effects: Effects) -> None:
        del self.sessions[session.name]
        session.ended = ended
        effects.sessions_ended.append(session)
