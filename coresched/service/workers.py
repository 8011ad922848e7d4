"""What changed the workers, kept in the log and applied again after a restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias, cast

import grpc
from google.protobuf.message import Message

from coresched.errors import InputError
from coresched.service.answers import AnswerMemory, digest
from coresched.service.batches.facts import WorkerDrained, WorkerFact, WorkerRegistered, WorkerRemoved
from coresched.service.batches.log import FactLog, JournalError, NoLog
from coresched.service.clock import ServiceClock
from coresched.service.identity import current_tenant
from coresched.service.refusal import RefusedError
from coresched.service.table import Flight, RoutingTable
from coresched.service.telemetry.events import log_worker_fact
from coresched.v1 import router_pb2 as pb

RouterAnswers: TypeAlias = "AnswerMemory[Flight | Message]"

REGISTERED = pb.RegisterWorkerResponse()
"""One for all answers: an empty message of one's own would take most of the memory of an answer."""


class ManagingCall(Protocol):
    """A call that changes one worker."""

    request_id: str
    worker: str


class WorkerRecord:
    """Appends what calls change; by default to no log."""

    def __init__(self, log: FactLog | None = None, clock: ServiceClock | None = None) -> None:
        self._log = NoLog() if log is None else log
        self._clock = ServiceClock() if clock is None else clock
        self._last = 0

    def registered(self, call: ManagingCall, weight: float) -> None:
        self._keep(
            WorkerRegistered(
                at=self._clock.now(),
                request_id=call.request_id,
                digest=digest(cast(Message, call)),
                tenant=current_tenant(),
                worker=call.worker,
                weight=weight,
            )
        )

    def taken_off(
        self, kind: type[WorkerDrained] | type[WorkerRemoved], call: ManagingCall, in_flight: int
    ) -> None:
        self._keep(
            kind(
                at=self._clock.now(),
                request_id=call.request_id,
                digest=digest(cast(Message, call)),
                tenant=current_tenant(),
                worker=call.worker,
                in_flight=in_flight,
            )
        )

    def _keep(self, fact: WorkerFact) -> None:
        self._last = self._log.append(fact)
        log_worker_fact(fact)

    async def committed(self) -> None:
        """Return once all of it is durable. Refused, UNAVAILABLE, if it cannot be."""
        try:
            await self._log.committed(self._last)
        except JournalError as error:
            raise RefusedError(
                grpc.StatusCode.UNAVAILABLE,
                "",
                f"the journal cannot be written: {error}; send the call again",
            ) from None


def replay_workers(table: RoutingTable, answers: RouterAnswers) -> Callable[[WorkerFact], None]:
    """A function that applies the facts of an earlier life to the table, and remembers their answers.

    The workers that the table has already were given at this start and stay as they are. Facts about workers
    that were given at an earlier start only change nothing. The function raises InputError for a worker that
    this service cannot have.
    """
    given = frozenset(table.workers())

    def apply(fact: WorkerFact) -> None:
        answer: Message
        if isinstance(fact, WorkerRegistered):
            answer = REGISTERED
        elif isinstance(fact, WorkerDrained):
            answer = pb.DrainWorkerResponse(in_flight=fact.in_flight)
        else:
            answer = pb.RemoveWorkerResponse(in_flight=fact.in_flight)
        answers.keep(fact.request_id, fact.digest, answer, fact.tenant)
        if fact.worker in given:
            return
        if isinstance(fact, WorkerRegistered):
            try:
                table.register(fact.worker, fact.weight)
            except RefusedError as refused:
                raise InputError(
                    f"--journal has a worker that --worker or --virtual-nodes leave no room for, "
                    f"{refused.message}"
                ) from None
        elif fact.worker in table.workers():
            if isinstance(fact, WorkerDrained):
                table.drain(fact.worker)
            else:
                table.remove(fact.worker)

    return apply
