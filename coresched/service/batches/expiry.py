"""What ends by itself: silent sessions, environment slots at their maximum, waits nobody came back for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf

from coresched.service.batches import facts
from coresched.service.batches.effects import Effects
from coresched.service.batches.facts import BatchFact
from coresched.service.batches.ledger import Ledger
from coresched.service.batches.samples import SampleRecord
from coresched.service.batches.sessions import Session
from coresched.service.batches.waits import Wait
from coresched.service.clock import ServiceClock

_Due = Callable[[float], "float | None"]  # does what is due, or returns the later time at which it will be


class Expiry:
    """One heap of moments, and the one task that sleeps until the earliest.

    A session's moment is moved only when it comes, so that a call costs no more than noting the time.
    """

    def __init__(
        self,
        ledger: Ledger,
        record: Callable[[BatchFact], object],
        abandoned: Callable[[Wait], None],
        clock: ServiceClock,
    ) -> None:
        self._ledger = ledger
        self._record = record
        self._abandoned = abandoned
        self._clock = clock
        self._seen: dict[str, float] = {}
        self._slots: dict[tuple[int, str], float] = {}
        self._heap: list[tuple[float, int, _Due]] = []
        self._entries = 0
        self._earlier = asyncio.Event()

    def saw(self, session: str, tenant: str) -> None:
        """A call of this session arrived: it lives. Nothing happens if it ended or is another tenant's."""
        if session in self._seen and self._ledger.sessions[session].batch.tenant == tenant:
            self._seen[session] = self._clock.now()

    def watch_session(self, session: Session) -> None:
        """End it once it has been silent for its grace period, from now on."""
        now = self._clock.now()
        self._seen[session.name] = now
        self._push(now + session.grace_s, lambda now: self._session_due(session, now))

    def watch_slot(self, key: int, record: SampleRecord) -> None:
        """Take the environment slot of the sample back at its maximum, if it has one."""
        if record.max_s is None:
            return
        moment = record.since + record.max_s
        slot = (key, record.name)
        # An earlier entry of the sample, of a stage that has ended, is moved when it comes.
        if self._slots.get(slot, inf) > moment:
            self._slots[slot] = moment
            self._push(moment, lambda now: self._slot_due(key, record, now))

    def watch_wait(self, wait: Wait) -> None:
        """Give the place of a wait up if no call comes for it within its session's grace period."""
        self._push(self._clock.now() + wait.session.grace_s, lambda now: self._wait_due(wait))

    def on_fact(self, fact: BatchFact, effects: Effects) -> None:
        if isinstance(fact, facts.SessionOpened):
            self.watch_session(self._ledger.sessions[fact.session])
        for record, _ in effects.granted:
            self.watch_slot(effects.batch.key, record)
        for session in effects.sessions_ended:
            self._seen.pop(session.name, None)

    def expire(self) -> float | None:
        """End what is due; the moment at which something will be next, or None."""
        while self._heap and self._heap[0][0] <= self._clock.now():
            due = heappop(self._heap)[2]
            later = due(self._clock.now())
            if later is not None:
                self._push(later, due)
        return self._heap[0][0] if self._heap else None

    async def run(self) -> None:
        """Expire for ever."""
        while True:
            self._earlier.clear()
            moment = self.expire()
            timeout = None if moment is None else max(moment - self._clock.now(), 0.0)
            try:
                await asyncio.wait_for(self._earlier.wait(), timeout)
            except asyncio.TimeoutError:
                continue

    def _push(self, moment: float, due: _Due) -> None:
        if not self._heap or moment < self._heap[0][0]:
            self._earlier.set()
        self._entries += 1
        heappush(self._heap, (moment, self._entries, due))

    def _session_due(self, session: Session, now: float) -> float | None:
        if session.ended:
            return None
        moment = self._seen[session.name] + session.grace_s
        if moment > now:
            return moment
        self._record(facts.SessionEnded(at=now, key=session.batch.key, session=session.name, left=False))
        return None

    def _slot_due(self, key: int, record: SampleRecord, now: float) -> float | None:
        self._slots.pop((key, record.name), None)
        batch = self._ledger.batches.get(key)
        if batch is None or record.max_s is None or batch.state(record) != "environment":
            return None
        moment = record.since + record.max_s
        if moment > now:
            self._slots[key, record.name] = moment
            return moment
        self._record(facts.EnvironmentEnded(at=now, key=key, sample=record.name, how="expired"))
        return None

    def _wait_due(self, wait: Wait) -> None:
        if wait.outcome is None and not wait.calls:
            self._abandoned(wait)
