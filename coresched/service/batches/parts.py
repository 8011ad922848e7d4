"""What the calls of the Batches service work on, put together once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, cast

from google.protobuf.message import Message
from grpc import StatusCode

from coresched.service.answers import REMEMBERED_ANSWERS, AnswerMemory, digest
from coresched.service.batches import facts
from coresched.service.batches.access import Access
from coresched.service.batches.expiry import Expiry
from coresched.service.batches.facts import BatchFact
from coresched.service.batches.flights import Flights
from coresched.service.batches.ledger import Ledger
from coresched.service.batches.limits import Limits
from coresched.service.batches.log import FactLog
from coresched.service.batches.recorder import Recorder
from coresched.service.batches.samples import Asked
from coresched.service.batches.waits import Wait, Waits
from coresched.service.clock import ServiceClock
from coresched.service.identity import current_tenant
from coresched.service.refusal import RefusedError
from coresched.service.table import RoutingTable

_ABANDONED = RefusedError(StatusCode.CANCELLED, "", "the call was cancelled")


class Call(Protocol):
    request_id: str


C = TypeVar("C", bound=Call)
M = TypeVar("M", bound=Message)


class Parts:
    """State, and everything that follows its changes."""

    def __init__(
        self,
        table: RoutingTable,
        log: FactLog,
        clock: ServiceClock,
        limits: Limits,
        remembered: int = REMEMBERED_ANSWERS,
    ) -> None:
        self.clock = clock
        self.limits = limits
        self.ledger = Ledger()
        self.answers: AnswerMemory[Message] = AnswerMemory(remembered)
        self.recorder = Recorder(self.ledger, self.answers, log)
        self.access = Access(self.ledger)
        self.flights = Flights(table)
        self.waits = Waits(limits.waiters, self.give_up)
        self.expiry = Expiry(self.ledger, self.recorder.record, self.give_up, clock)
        self.recorder.listeners += [self.flights.on_fact, self.waits.on_fact, self.expiry.on_fact]

    def answered(self, call: Call) -> tuple[Asked, Message | None]:
        """The call's signature, and its answer if it was carried out before. Shows that its session lives.

        Refused, INVALID_ARGUMENT: the request_id is none, or belongs to another call.
        """
        tenant = current_tenant()
        session = getattr(call, "session", "")
        if session:
            self.expiry.saw(session, tenant)
        asked = Asked(call.request_id, digest(cast(Message, call)))
        return asked, self.answers.find(asked.request_id, asked.digest, tenant)

    def once(self, call: C, carry_out: Callable[[C, Asked], BatchFact], kind: type[M]) -> M:
        """Carry a call out, unless that was done before: `carry_out` checks it and gives the fact it is."""
        asked, answer = self.answered(call)
        if answer is None:
            self.waits.find(current_tenant(), asked)  # refuses the id of another call
            answer = self.recorder.record(carry_out(call, asked))
        return cast(M, answer)

    def resume(self) -> None:
        """After the facts of an earlier life were replayed: its sessions have a fresh grace period.

        Turns are in flight on their workers again, if these are known, and a wait whose call does not come
        again within the grace period is given up.
        """
        for session in list(self.ledger.sessions.values()):
            if session.ended:
                continue
            self.expiry.watch_session(session)
            for record in session.held.values():
                state = session.batch.state(record)
                if state == "inference" and record.worker:
                    self.flights.restore(session, record)
                elif state == "environment":
                    self.expiry.watch_slot(session.batch.key, record)
                elif state in ("waiting", "queued", "resident_queued") and record.asked is not None:
                    self.expiry.watch_wait(self.waits.begin(record.asked, session, record))

    def give_up(self, wait: Wait) -> None:
        """Give up the place of a wait that nobody attends any more."""
        batch = wait.session.batch
        if wait.sample is None:
            self.waits.end(wait, _ABANDONED)
            return
        state = batch.state(batch.samples[wait.sample])
        now = self.clock.now()
        if state == "waiting":
            self.recorder.record(facts.SampleGivenBack(at=now, key=batch.key, sample=wait.sample))
        elif state == "queued":
            self.recorder.record(
                facts.EnvironmentEnded(at=now, key=batch.key, sample=wait.sample, how="dropped")
            )
        elif state == "resident_queued":
            self.recorder.record(
                facts.ResidentEnded(at=now, key=batch.key, sample=wait.sample, how="dropped")
            )
