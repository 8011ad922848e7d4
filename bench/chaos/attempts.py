"""The events of all processes as attempts: one session that ran one sample, from when to when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bench.chaos.events import Event

_NEXT: dict[str, frozenset[str]] = {
    "admitted": frozenset({"resident_granted"}),
    "resident_granted": frozenset({"turn_started", "environment_granted", "resident_ended"}),
    "turn_started": frozenset({"turn_ended", "turn_failed"}),
    "turn_ended": frozenset({"turn_started", "environment_granted", "resident_ended"}),
    "turn_failed": frozenset({"turn_started", "environment_granted", "resident_ended"}),
    "environment_granted": frozenset({"environment_ended"}),
    "environment_ended": frozenset({"turn_started", "environment_granted", "resident_ended"}),
    "resident_ended": frozenset({"finishing"}),
    "finishing": frozenset({"finished"}),
    "finished": frozenset(),
}
"""What may come after an event of a sample, in one attempt."""


class MalformedLogError(Exception):
    """The events of a process cannot be as they are: the harness is wrong, or its log."""


@dataclass(slots=True)
class Session:
    """One session of one process, and what became of it.

    `seen_at`: the service has seen it alive then, or later. `over_at`: it died, or its grace period was over
    as of `seen_at`, whichever came first: from then on it has no right to what it held. None if it left.
    """

    process: str
    number: int
    attempts: dict[str, Attempt] = field(default_factory=dict)
    seen_at: float = 0.0
    left: bool = False
    lost: bool = False
    died_at: float | None = None
    over_at: float | None = None

    def __str__(self) -> str:
        return f"{self.process}/{self.number}"


@dataclass(slots=True)
class Attempt:
    """`events` are those of the sample in this session, from its admission."""

    session: Session
    sample: str
    events: list[Event]

    @property
    def admitted_at(self) -> float:
        return self.events[0].at

    @property
    def void(self) -> bool:
        """A process that was stalled may read an admission when its session is over: in vain."""
        return self.session.over_at is not None and self.session.over_at <= self.admitted_at

    @property
    def finishing(self) -> bool:
        """Whether the service was, or may have been, asked to finish it."""
        return self.events[-1].kind in ("finishing", "finished")

    @property
    def finished(self) -> bool:
        return self.events[-1].kind == "finished"

    @property
    def held(self) -> Held | None:
        """The sample slot, from its admission until the service was asked to finish the sample."""
        end = next((event.at for event in self.events if event.kind == "finishing"), None)
        return _held(self, self.admitted_at, end)

    @property
    def residency(self) -> Held | None:
        """The resident slot, from its grant until the service was told that it is free."""
        start = next((event.at for event in self.events if event.kind == "resident_granted"), None)
        end = next((event.at for event in self.events if event.kind == "resident_ended"), None)
        return None if start is None else _held(self, start, end)

    def stages(self) -> Iterator[Held]:
        """The environment slots, each from its grant until the service was told that the stage had ended."""
        for place, event in enumerate(self.events):
            if event.kind == "environment_granted":
                end = self.events[place + 1].at if place + 1 < len(self.events) else None
                stage = _held(self, event.at, end)
                if stage is not None:
                    yield stage

    def told(self, kind: str) -> int:
        """Events of this kind, which the service was told of, or was about to be."""
        return sum(event.kind == kind for event in self.events)

    def acknowledged(self, kind: str) -> int:
        """As `told`, without one that came last: whether the service heard of that is not known."""
        return self.told(kind) - (self.events[-1].kind == kind)


@dataclass(frozen=True, slots=True)
class Held:
    """A slot as the attempt saw it: the service must count it as held so long, and maybe longer."""

    attempt: Attempt
    start: float
    end: float


def _held(attempt: Attempt, start: float, end: float | None) -> Held | None:
    """None if the session was over before; see `Attempt.void`."""
    over = attempt.session.over_at
    ends = [moment for moment in (end, over) if moment is not None]
    if not ends:
        raise MalformedLogError(f"{attempt.session} left without ending {attempt.sample}")
    return Held(attempt, start, min(ends)) if start < min(ends) else None


def read_sessions(
    events: Mapping[str, Sequence[Event]], died_at: Mapping[str, float], grace_s: float
) -> list[Session]:
    """The sessions of all processes. `died_at` names those that were killed.

    Raises MalformedLogError if a process did not follow its own order, or ended without a word.
    """
    return [
        session
        for process, of_process in events.items()
        for session in _sessions(process, of_process, died_at.get(process), grace_s)
    ]


def _sessions(
    process: str, events: Sequence[Event], died_at: float | None, grace_s: float
) -> Iterator[Session]:
    sessions: dict[int, Session] = {}
    for event in events:
        session = sessions.setdefault(event.session, Session(process, event.session))
        if session.left or session.lost:
            raise MalformedLogError(f"{session} goes on after its end: {event}")
        _take(session, event)
    for session in sessions.values():
        if not session.left and not session.lost:
            if died_at is None:
                raise MalformedLogError(f"{session} ended without a word, and was not killed")
            session.died_at = died_at
        if not session.left:
            over = session.seen_at + grace_s
            session.over_at = over if session.died_at is None else min(over, session.died_at)
        yield session


def _take(session: Session, event: Event) -> None:
    if event.asked_at is not None:
        session.seen_at = max(session.seen_at, event.asked_at)
    if event.kind == "left":
        session.left = True
    elif event.kind == "session_lost":
        session.lost = True
    elif event.kind == "admitted":
        if event.sample in session.attempts:
            raise MalformedLogError(f"{session} was admitted {event.sample} twice")
        session.attempts[event.sample] = Attempt(session, event.sample, [event])
    elif event.kind != "joined":
        attempt = session.attempts.get(event.sample)
        if attempt is None or event.kind not in _NEXT[attempt.events[-1].kind]:
            before = "nothing" if attempt is None else attempt.events[-1].kind
            raise MalformedLogError(f"{session}: {event.kind} of {event.sample} after {before}")
        attempt.events.append(event)
