"""All batches, and how facts change them: no clock, no I/O, the same facts always give the same state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from coresched.service.batches import facts
from coresched.service.batches.batch import Batch
from coresched.service.batches.effects import Effects
from coresched.service.batches.facts import BatchFact
from coresched.service.batches.samples import Asked
from coresched.service.batches.sessions import Session

REMEMBERED_BATCHES = 16
"""Closed batches of a tenant that can still be reported."""

REMEMBERED_SESSIONS = 10_000
"""Ended sessions of a batch that are still told how they ended."""


class Ledger:
    """The state of the service, to be changed by facts alone.

    A fact is not checked: it happened, or was checked by the call that is about to make it happen. `apply`
    takes O(log samples), the end of a session O(samples held), the end of a batch O(samples).
    """

    def __init__(self) -> None:
        self.batches: dict[int, Batch] = {}
        self.sessions: dict[str, Session] = {}
        self.next_key = 1
        self._by_name: dict[tuple[str, str], Batch] = {}
        self._open: dict[str, dict[int, Batch]] = {}
        self._closed: dict[str, deque[int]] = {}
        self._ended: dict[int, deque[str]] = {}
        self._steps: dict[type, Callable[[Any, Batch, Effects], None]] = {
            facts.SessionOpened: self._session_opened,
            facts.SamplesSubmitted: self._samples_submitted,
            facts.SampleClaimed: self._sample_claimed,
            facts.SampleGivenBack: self._sample_given_back,
            facts.TurnStarted: self._turn_started,
            facts.TurnFinished: self._turn_finished,
            facts.EnvironmentRequested: self._environment_requested,
            facts.EnvironmentEnded: self._environment_ended,
            facts.ResidentRequested: self._resident_requested,
            facts.ResidentEnded: self._resident_ended,
            facts.SampleEnded: self._sample_ended,
            facts.SessionEnded: self._session_ended,
            facts.BatchClosed: self._batch_closed,
        }

    def apply(self, fact: BatchFact) -> Effects:
        """Change the state by one fact, with the admissions and grants that follow; what came of it.

        Raises KeyError for a fact about a batch, session or sample that is not known.
        """
        if isinstance(fact, facts.BatchOpened):
            return self._batch_opened(fact)
        batch = self.batches[fact.key]
        effects = Effects(batch)
        self._steps[type(fact)](fact, batch, effects)
        if batch.closed_at is None:
            batch.settle(fact.at, effects)
        elif effects.closed:
            self._put_away(batch, effects)
        for session in effects.sessions_ended:
            self._remember_ended(session)
        return effects

    def named(self, tenant: str, name: str) -> Batch | None:
        """The batch of that name: the open one, or the one closed last that is still remembered."""
        return self._by_name.get((tenant, name))

    def open_batches(self, tenant: str) -> list[Batch]:
        """In order of opening."""
        return list(self._open.get(tenant, {}).values())

    def abandoned_batches(self, tenant: str) -> list[Batch]:
        """Open batches whose last session ended by silence, the longest ago first."""
        abandoned = [
            (batch.abandoned_at, batch.key, batch)
            for batch in self.open_batches(tenant)
            if batch.abandoned_at is not None
        ]
        return [batch for _, _, batch in sorted(abandoned)]

    def count_open(self, tenant: str) -> int:
        return len(self._open.get(tenant, {}))

    # One method a kind of fact.

    def _batch_opened(self, fact: facts.BatchOpened) -> Effects:
        batch = Batch(fact)
        self.batches[fact.key] = batch
        self.next_key = max(self.next_key, fact.key + 1)
        self._by_name[fact.tenant, fact.batch] = batch
        self._open.setdefault(fact.tenant, {})[fact.key] = batch
        self._ended[fact.key] = deque()
        return Effects(batch)

    def _session_opened(self, fact: facts.SessionOpened, batch: Batch, effects: Effects) -> None:
        session = self.sessions[fact.session] = Session(fact.session, batch, fact.grace_s)
        batch.join(session)

    def _samples_submitted(self, fact: facts.SamplesSubmitted, batch: Batch, effects: Effects) -> None:
        batch.submit(fact.samples, fact.expected, fact.at)

    def _sample_claimed(self, fact: facts.SampleClaimed, batch: Batch, effects: Effects) -> None:
        asked = Asked(fact.request_id, fact.digest)
        batch.claim(batch.samples[fact.sample], self.sessions[fact.session], asked, fact.at, effects)

    def _sample_given_back(self, fact: facts.SampleGivenBack, batch: Batch, effects: Effects) -> None:
        batch.give_back(batch.samples[fact.sample], fact.at, effects)

    def _turn_started(self, fact: facts.TurnStarted, batch: Batch, effects: Effects) -> None:
        batch.start_turn(batch.samples[fact.sample], fact.worker, fact.at)

    def _turn_finished(self, fact: facts.TurnFinished, batch: Batch, effects: Effects) -> None:
        batch.finish_turn(batch.samples[fact.sample], fact.failed, fact.at, effects)

    def _environment_requested(
        self, fact: facts.EnvironmentRequested, batch: Batch, effects: Effects
    ) -> None:
        asked = Asked(fact.request_id, fact.digest)
        batch.request_environment(batch.samples[fact.sample], fact.max_s, asked, fact.since, fact.at)

    def _environment_ended(self, fact: facts.EnvironmentEnded, batch: Batch, effects: Effects) -> None:
        batch.end_environment(batch.samples[fact.sample], fact.how, fact.at, effects)

    def _resident_requested(self, fact: facts.ResidentRequested, batch: Batch, effects: Effects) -> None:
        asked = Asked(fact.request_id, fact.digest)
        batch.request_resident(batch.samples[fact.sample], asked, fact.since, fact.at)

    def _resident_ended(self, fact: facts.ResidentEnded, batch: Batch, effects: Effects) -> None:
        batch.end_resident(batch.samples[fact.sample], fact.how, fact.at, effects)

    def _sample_ended(self, fact: facts.SampleEnded, batch: Batch, effects: Effects) -> None:
        batch.end_sample(batch.samples[fact.sample], fact.withdrawn, fact.at, effects)

    def _session_ended(self, fact: facts.SessionEnded, batch: Batch, effects: Effects) -> None:
        batch.end_session(self.sessions[fact.session], fact.left, fact.at, effects)
        if fact.left and not fact.keep_open and not batch.sessions:
            batch.close(fact.at, effects)

    def _batch_closed(self, fact: facts.BatchClosed, batch: Batch, effects: Effects) -> None:
        batch.close(fact.at, effects)

    def _put_away(self, batch: Batch, effects: Effects) -> None:
        """Count a batch among the closed ones, of which each tenant has a bounded number."""
        del self._open[batch.tenant][batch.key]
        closed = self._closed.setdefault(batch.tenant, deque())
        closed.append(batch.key)
        if len(closed) > REMEMBERED_BATCHES:
            oldest = self.batches.pop(closed.popleft())
            for name in self._ended.pop(oldest.key):
                del self.sessions[name]
            if self._by_name[oldest.tenant, oldest.name] is oldest:
                del self._by_name[oldest.tenant, oldest.name]
            effects.forgotten.append(oldest.key)

    def _remember_ended(self, session: Session) -> None:
        ended = self._ended[session.batch.key]
        ended.append(session.name)
        if len(ended) > REMEMBERED_SESSIONS:
            del self.sessions[ended.popleft()]
