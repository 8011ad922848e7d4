"""The logs of a small run in which nothing is wrong, to be doctored by tests of the checker."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from bench.chaos.attempts import read_sessions
from bench.chaos.checker import Asked, Findings, check
from bench.chaos.events import Event, Kind
from coresched.batch.records import BatchSummary, SampleTimes
from coresched.client.local import BatchReport

GRACE_S = 5.0


def trajectory(sample: str, start: float, *, turns: int = 2, session: int = 1) -> Iterator[Event]:
    """A sample of so many turns, an environment stage between each: one second an event."""

    def event(kind: Kind, *, answer: bool = False) -> Event:
        nonlocal at
        at += 1.0
        asked_at = at - 0.5 if answer else None
        return Event(at=at, kind=kind, session=session, sample=sample, asked_at=asked_at)

    at = start - 1.0
    yield event("admitted", answer=True)
    at -= 0.75
    yield event("resident_granted", answer=True)
    at -= 0.25
    for turn in range(turns):
        yield event("turn_started", answer=True)
        yield event("turn_ended")
        if turn < turns - 1:
            yield event("environment_granted", answer=True)
            yield event("environment_ended")
    at -= 0.5
    yield event("resident_ended")
    at -= 0.5
    yield event("finishing")
    yield event("finished", answer=True)


def joined(at: float, session: int = 1) -> Event:
    return Event(at=at, kind="joined", session=session, asked_at=at - 0.5)


def left(at: float, session: int = 1) -> Event:
    return Event(at=at, kind="left", session=session)


def times(sample: str, *, turns: int = 2, admissions: int = 1) -> SampleTimes:
    zeros = {each.name: 0.0 for each in dataclasses.fields(SampleTimes)}
    counts: dict[str, Any] = {
        "sample": sample,
        "state": "finished",
        "admissions": admissions,
        "turns": turns,
        "environment_stages": turns - 1,
    }
    return SampleTimes(**{**zeros, **counts})  # type: ignore[arg-type]


class Run:
    """Two samples at a time, one of them in an environment stage. "first" dies while it runs "b"."""

    def __init__(self) -> None:
        self.names = ["a", "b", "c"]
        self.limits = (2, 1, 2)
        self.events: dict[str, list[Event]] = {
            "first": [joined(0), *trajectory("a", 1), *[*trajectory("b", 9)][:6]],
            # The grace period of "first" ends at 16.5: it asked for its last answer at 11.5.
            "second": [joined(0), *trajectory("c", 2.25), *trajectory("b", 18), left(30)],
        }
        self.died_at = {"first": 14.0}
        self.report = [times("a"), times("b", admissions=2), times("c")]
        self.turns = 7
        self.stages = 4
        self.readmissions = 1
        self.totals: dict[str, int] = {}
        self.in_flight = {"w0": 0, "w1": 0}

    def replace(self, process: str, sample: str, kind: Kind, **changes: Any) -> None:
        """Doctor the first event of that kind."""
        place, event = self._find(process, sample, kind)
        fields = {name: getattr(event, name) for name in Event.__struct_fields__}
        self.events[process][place] = Event(**{**fields, **changes})

    def drop(self, process: str, sample: str, kind: Kind) -> None:
        del self.events[process][self._find(process, sample, kind)[0]]

    def cut(self, process: str, sample: str, kind: Kind) -> None:
        """Everything from that event on."""
        del self.events[process][self._find(process, sample, kind)[0] :]

    def _find(self, process: str, sample: str, kind: Kind) -> tuple[int, Event]:
        return next(
            (place, event)
            for place, event in enumerate(self.events[process])
            if event.sample == sample and event.kind == kind
        )

    def findings(self) -> Findings:
        asked = Asked(self.names, *self.limits, GRACE_S)
        sessions = read_sessions(self.events, self.died_at, GRACE_S)
        whole = BatchSummary.of(self.report)
        changes = {"turns": self.turns, "environment_stages": self.stages, "readmissions": self.readmissions}
        totals = dataclasses.replace(whole, **{**changes, **self.totals})  # type: ignore[arg-type]
        report = BatchReport(totals, {each.sample: each for each in self.report})
        return check(asked, sessions, report, self.in_flight)
