"""The calls that wait for an admission or a slot, and how each wait ends."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from google.protobuf.message import Message
from grpc import StatusCode

from coresched.service.answers import refuse_other_call
from coresched.service.batches import facts
from coresched.service.batches.batch import Batch
from coresched.service.batches.effects import Effects
from coresched.service.batches.facts import BatchFact
from coresched.service.batches.samples import Asked, SampleRecord
from coresched.service.batches.sessions import Session
from coresched.service.refusal import RefusedError, shown
from coresched.service.traceparent import current_trace


class Wait:
    """One request that waits, with every call attached that sent it; `sample` is None while none is open.

    It ends with an `outcome`, the answer or a refusal, for all its calls. `trace` is that of the first.
    """

    __slots__ = ("asked", "calls", "outcome", "sample", "session", "trace")

    def __init__(self, asked: Asked, session: Session, sample: str | None) -> None:
        self.asked = asked
        self.session = session
        self.sample = sample
        self.trace = current_trace()
        self.calls: list[asyncio.Future[None]] = []
        self.outcome: Message | RefusedError | None = None


class Waits:
    """Who waits for what. `abandoned` is called with a wait whose last call is gone, to give up the place."""

    def __init__(self, most: int, abandoned: Callable[[Wait], None]) -> None:
        self._most = most
        self._abandoned = abandoned
        self._stopping = False
        self._by_request: dict[tuple[str, str], Wait] = {}
        self._by_sample: dict[tuple[int, str], Wait] = {}
        self._idle: dict[int, OrderedDict[Wait, None]] = {}
        self._blocked: Counter[str] = Counter()

    @property
    def blocked(self) -> int:
        """Calls that wait, of all tenants."""
        return self._blocked.total()

    def find(self, tenant: str, asked: Asked) -> Wait | None:
        """The wait of this very request. Refused, INVALID_ARGUMENT: another call that waits has its id."""
        wait = self._by_request.get((tenant, asked.request_id))
        if wait is not None and wait.asked.digest != asked.digest:
            refuse_other_call(asked.request_id)
        return wait

    def check_room(self, tenant: str) -> None:
        """Refused: UNAVAILABLE when stopping, RESOURCE_EXHAUSTED with as many calls waiting as may."""
        if self._stopping:
            raise stopping()
        if self._blocked[tenant] >= self._most:
            raise RefusedError(
                StatusCode.RESOURCE_EXHAUSTED,
                "",
                f"{self._most} calls wait already, the most of --max-waiters; "
                "send the call again when some have ended",
            )

    @contextmanager
    def blocking(self, tenant: str) -> Iterator[None]:
        """Count a call among those that wait. Refused as `check_room` does."""
        self.check_room(tenant)
        self._blocked[tenant] += 1
        try:
            yield
        finally:
            self._blocked[tenant] -= 1

    def begin(self, asked: Asked, session: Session, record: SampleRecord | None) -> Wait:
        """A new wait for this sample, or for any. One before it for the same sample ends: ABORTED."""
        wait = Wait(asked, session, None)
        self._by_request[session.batch.tenant, asked.request_id] = wait
        if record is None:
            self._idle.setdefault(session.batch.key, OrderedDict())[wait] = None
        else:
            self.claim(wait, record)
        return wait

    def claim(self, wait: Wait, record: SampleRecord) -> None:
        """From now on it waits for this sample."""
        place = (wait.session.batch.key, record.name)
        before = self._by_sample.get(place)
        if before is not None:
            self.end(
                before,
                RefusedError(
                    StatusCode.ABORTED,
                    "sample",
                    f"sample {shown(record.name)} is waited for by a later call of the same session",
                ),
            )
        if wait in self._idle.get(wait.session.batch.key, ()):
            self._leave_idle(wait)
        wait.sample = record.name
        self._by_sample[place] = wait

    def first_idle(self, batch: Batch) -> Wait | None:
        """The one that has waited longest for any sample of the batch to open."""
        idle = self._idle.get(batch.key)
        return next(iter(idle)) if idle else None

    def end(self, wait: Wait, outcome: Message | RefusedError) -> None:
        """End it for all its calls. It may have ended already, in which case nothing happens."""
        if wait.outcome is not None:
            return
        wait.outcome = outcome
        batch = wait.session.batch
        del self._by_request[batch.tenant, wait.asked.request_id]
        if wait.sample is None:
            self._leave_idle(wait)
        else:
            del self._by_sample[batch.key, wait.sample]
        for call in wait.calls:
            if not call.done():
                call.set_result(None)

    async def attend(self, wait: Wait) -> Message:
        """Wait with it for its end; its answer. Cancelled, as the last of its calls, it gives up the place.

        Raises RefusedError if that is the outcome.
        """
        if wait.outcome is None:
            tenant = wait.session.batch.tenant
            call = asyncio.get_running_loop().create_future()
            wait.calls.append(call)
            self._blocked[tenant] += 1
            try:
                await call
            finally:
                self._blocked[tenant] -= 1
                wait.calls.remove(call)
                # What was granted in the very moment of the cancellation stays with the session.
                if wait.outcome is None and not wait.calls:
                    self._abandoned(wait)
        if isinstance(wait.outcome, RefusedError):
            raise wait.outcome
        assert wait.outcome is not None
        return wait.outcome

    def on_fact(self, fact: BatchFact, effects: Effects) -> None:
        """End the waits that the fact answered or made vain."""
        key = effects.batch.key
        for record, answer in effects.answers:
            wait = self._by_sample.get((key, record.name))
            if wait is not None:
                self.end(wait, answer)
        for record in effects.waits_ended:
            wait = self._by_sample.get((key, record.name))
            if wait is not None:
                self.end(wait, _in_vain(fact, effects, record))
        if effects.sessions_ended:
            ended = set(effects.sessions_ended)
            for wait in list(self._idle.get(key, ())):
                if wait.session in ended:
                    self.end(wait, _closed(effects) if effects.closed else session_ended(wait.session))

    def _leave_idle(self, wait: Wait) -> None:
        key = wait.session.batch.key
        idle = self._idle[key]
        del idle[wait]
        if not idle:
            del self._idle[key]

    def stop(self) -> None:
        """End every wait, and keep its place: the call that is sent again after the restart takes it."""
        self._stopping = True
        for wait in list(self._by_request.values()):
            self.end(wait, stopping())


def session_ended(session: Session) -> RefusedError:
    """Of a call of a session that has ended: it says how."""
    return RefusedError(
        StatusCode.FAILED_PRECONDITION,
        "session",
        f"session {shown(session.name)} has ended: {session.ended}; open the batch again",
    )


def _in_vain(fact: BatchFact, effects: Effects, record: SampleRecord) -> RefusedError:
    if effects.closed:
        return _closed(effects)
    if isinstance(fact, facts.SessionEnded):
        return session_ended(effects.sessions_ended[0])
    return RefusedError(
        StatusCode.FAILED_PRECONDITION,
        "sample",
        f"sample {shown(record.name)} was given up by another call of its session",
    )


def _closed(effects: Effects) -> RefusedError:
    return RefusedError(
        StatusCode.ABORTED, "", f"batch {shown(effects.batch.name)} was closed while the call waited"
    )


def stopping() -> RefusedError:
    """Of a call that would wait for longer than the service is there."""
    return RefusedError(StatusCode.UNAVAILABLE, "", "stopping; send the call again")
