"""All that one service holds, new or as its journal tells: workers, requests in flight, batches."""

from __future__ import annotations

from collections.abc import Callable

from coresched.service.answers import AnswerMemory
from coresched.service.batches.facts import AnyFact, WorkerFact
from coresched.service.batches.limits import Limits
from coresched.service.batches.servicer import BatchesService
from coresched.service.calls import RouterCalls
from coresched.service.clock import ServiceClock
from coresched.service.journal import Journal
from coresched.service.journal.recovery import recover
from coresched.service.prefix.queues import WaitingQueues
from coresched.service.table import RoutingTable
from coresched.service.workers import RouterAnswers, WorkerRecord, replay_workers


class ServiceState:
    """The calls of Router and Batches over one routing table, one clock and one log; the queues of Prefix."""

    def __init__(
        self,
        table: RoutingTable,
        *,
        journal: Journal | None = None,
        limits: Limits | None = None,
        clock: ServiceClock | None = None,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Recover what is in the journal, the workers of the table being those that were given at this start.

        `report` is told in a line what was recovered, and how far it is when that takes long. Raises
        InputError, and leaves the journal as it was, if that is damaged.
        """
        self.table = table
        self.queues = WaitingQueues()
        self.journal = journal
        clock = clock or ServiceClock()
        answers: RouterAnswers = AnswerMemory()
        self.batches = BatchesService(table, log=journal, clock=clock, limits=limits)
        replay_worker = replay_workers(table, answers)

        def replay(fact: AnyFact) -> None:
            if isinstance(fact, WorkerFact):
                replay_worker(fact)
            else:
                self.batches.replay(fact)

        if journal is not None:
            recovered = recover(
                journal, replay, report=lambda facts: report(f"reading the journal, {facts:,} facts so far")
            )
            clock.go_on_from(recovered.at)
            self.batches.resume()
            if recovered.facts:
                report(self._recovered(recovered.facts, len(table.workers())))
        self.router = RouterCalls(table, answers=answers, record=WorkerRecord(journal, clock))

    def _recovered(self, facts: int, workers: int) -> str:
        batches = self.batches.parts.ledger.batches.values()
        still = [batch for batch in batches if batch.closed_at is None]
        samples = sum(len(batch.samples) for batch in still)
        return (
            f"recovered {len(still):,} open batches with {samples:,} samples, {len(batches) - len(still):,} "
            f"closed ones and {workers:,} workers from {facts:,} facts"
        )
