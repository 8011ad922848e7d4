"""The one way in which a batch changes: a fact is applied, logged, remembered and told on."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import Message
from grpc import StatusCode

from coresched.service.answers import AnswerMemory
from coresched.service.batches import replies
from coresched.service.batches.effects import Effects
from coresched.service.batches.facts import BatchFact
from coresched.service.batches.ledger import Ledger
from coresched.service.batches.log import FactLog, JournalError
from coresched.service.batches.samples import Asked
from coresched.service.refusal import RefusedError

Listener = Callable[[BatchFact, Effects], None]


class Recorder:
    """Facts into ledger, log and answers. `listeners` are called after each new fact, in their order."""

    def __init__(self, ledger: Ledger, answers: AnswerMemory[Message], log: FactLog) -> None:
        self.listeners: list[Listener] = []
        self._ledger = ledger
        self._answers = answers
        self._log = log
        self._sequence = 0

    def record(self, fact: BatchFact) -> Message | None:
        """Make it so; the answer to the call that caused it, or None if that waits or there was none.

        The answer may be sent once `committed` has returned.
        """
        effects = self._ledger.apply(fact)
        self._sequence = self._log.append(fact)
        answer = self._remember(fact, effects)
        for listener in self.listeners:
            listener(fact, effects)
        return answer

    def replay(self, fact: BatchFact) -> None:
        """Apply a fact of an earlier life; nobody is told."""
        self._remember(fact, self._ledger.apply(fact))

    async def committed(self) -> None:
        """Return once everything recorded so far is durable. Refused, UNAVAILABLE, if it cannot be."""
        try:
            await self._log.committed(self._sequence)
        except JournalError as error:
            raise RefusedError(
                StatusCode.UNAVAILABLE, "", f"the journal cannot be written: {error}; send the call again"
            ) from None

    def _remember(self, fact: BatchFact, effects: Effects) -> Message | None:
        answer = replies.reply(fact, effects)
        if answer is not None:
            self._keep(Asked(fact.request_id, fact.digest), answer, effects)
        for record, asked in effects.admitted:
            admitted = replies.admission(effects.batch, record)
            effects.answers.append((record, admitted))
            self._keep(asked, admitted, effects)
        for record, asked in effects.granted:
            granted = replies.grant(record)
            effects.answers.append((record, granted))
            self._keep(asked, granted, effects)
        for record, asked in effects.housed:
            housed = replies.house(record)
            effects.answers.append((record, housed))
            self._keep(asked, housed, effects)
        if effects.forgotten:
            self._log.forget(effects.forgotten)
        return answer

    def _keep(self, asked: Asked | None, answer: Message, effects: Effects) -> None:
        if asked is not None and asked.request_id:
            self._answers.keep(asked.request_id, asked.digest, answer, effects.batch.tenant)
