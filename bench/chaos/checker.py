"""Whether anything was lost, done twice or over a limit, from what harnesses wrote down and the report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bench.chaos.attempts import Attempt, Held, Session
from coresched.client.local import BatchReport


@dataclass(frozen=True, slots=True)
class Asked:
    """What the run was about. `names` are all samples."""

    names: Sequence[str]
    sample_concurrency: int
    environment_concurrency: int
    resident_concurrency: int
    grace_s: float


@dataclass(frozen=True, slots=True)
class Findings:
    """Sentences, one a violation; nothing was found if all are empty."""

    lost: list[str] = field(default_factory=list)
    """Samples that were not finished, or of which no process was told so that could have been."""
    twice: list[str] = field(default_factory=list)
    """Samples that were finished twice, run by two live sessions, or given to another without need."""
    over_limit: list[str] = field(default_factory=list)
    """Moments with more samples, environment stages or residents than C_S, C_E or C_R."""
    report: list[str] = field(default_factory=list)
    """Where the service's own account differs from the harnesses'."""
    left_over: list[str] = field(default_factory=list)
    """Requests, slots and samples that were still held when all was over."""

    def all(self) -> list[str]:
        return [*self.lost, *self.twice, *self.over_limit, *self.report, *self.left_over]


def check(
    asked: Asked, sessions: Sequence[Session], report: BatchReport, in_flight: Mapping[str, int]
) -> Findings:
    """All findings. `report` and `in_flight`, by worker, are the service's once all harnesses have ended."""
    attempts = _by_sample(sessions)
    return Findings(
        lost=[*_lost(asked, attempts, report)],
        twice=[*_twice(asked, attempts)],
        over_limit=[
            *_over("samples", asked.sample_concurrency, sample_slots(sessions)),
            *_over("environment stages", asked.environment_concurrency, environment_slots(sessions)),
            *_over("residents", asked.resident_concurrency, resident_slots(sessions)),
        ],
        report=[*_report_of_samples(attempts, report), *_report_of_all(asked, sessions, attempts, report)],
        left_over=[*_left_over(report, in_flight)],
    )


def sample_slots(sessions: Iterable[Session]) -> list[Held]:
    held = [attempt.held for session in sessions for attempt in session.attempts.values()]
    return [slot for slot in held if slot is not None]


def resident_slots(sessions: Iterable[Session]) -> list[Held]:
    held = [attempt.residency for session in sessions for attempt in session.attempts.values()]
    return [slot for slot in held if slot is not None]


def environment_slots(sessions: Iterable[Session]) -> list[Held]:
    return [
        slot for session in sessions for attempt in session.attempts.values() for slot in attempt.stages()
    ]


def most_at_once(slots: Iterable[Held]) -> tuple[int, float]:
    """The most that were held at a time, and the first moment of that."""
    # A slot that ends at the moment at which another begins is free for it.
    changes = sorted([(slot.start, 1) for slot in slots] + [(slot.end, -1) for slot in slots])
    most, most_at, now = 0, 0.0, 0
    for at, change in changes:
        now += change
        if now > most:
            most, most_at = now, at
    return most, most_at


def unacknowledged(attempt: Attempt) -> bool:
    """Whether it died, or was given up, between asking to finish the sample and hearing that it has."""
    return attempt.finishing and not attempt.finished and attempt.session.over_at is not None


def _by_sample(sessions: Iterable[Session]) -> dict[str, list[Attempt]]:
    """In order of admission."""
    found: dict[str, list[Attempt]] = defaultdict(list)
    for session in sessions:
        for attempt in session.attempts.values():
            found[attempt.sample].append(attempt)
    for attempts in found.values():
        attempts.sort(key=lambda attempt: attempt.admitted_at)
    return found


def _lost(asked: Asked, attempts: Mapping[str, list[Attempt]], report: BatchReport) -> Iterator[str]:
    for name in asked.names:
        times = report.samples.get(name)
        if times is None:
            yield f"{name} is not in the report"
        elif times.state != "finished":
            yield f"{name} is {times.state} in the end"
        of_sample = attempts.get(name, [])
        if any(attempt.finished for attempt in of_sample):
            continue
        if not any(unacknowledged(attempt) for attempt in of_sample):
            yield f"{name} was finished by no session"


def _twice(asked: Asked, attempts: Mapping[str, list[Attempt]]) -> Iterator[str]:
    known = set(asked.names)
    for name, of_sample in attempts.items():
        if name not in known:
            yield f"{name} was admitted, and never submitted"
        if sum(attempt.finished for attempt in of_sample) > 1:
            yield f"{name} was finished twice: " + ", ".join(str(each.session) for each in of_sample)
        valid = [attempt for attempt in of_sample if not attempt.void]
        for before, after in pairwise(valid):
            yield from _without_need(asked, before, after)


def _without_need(asked: Asked, before: Attempt, after: Attempt) -> Iterator[str]:
    """A further attempt needs an earlier one that has ended, and whose end the service could only guess."""
    told = f"{before.sample} went from {before.session} to {after.session}"
    over_at = before.session.over_at
    if before.finished:
        yield f"{told} after it was finished"
    elif over_at is None:
        yield f"{told}, which neither died nor was lost"
    elif after.admitted_at < over_at:
        yield f"{told} {over_at - after.admitted_at:.3f} s before that was over"
    elif after.admitted_at < before.session.seen_at + asked.grace_s:
        early = before.session.seen_at + asked.grace_s - after.admitted_at
        yield f"{told} {early:.3f} s before the end of its grace period"


def _over(what: str, limit: int, slots: Sequence[Held]) -> Iterator[str]:
    most, at = most_at_once(slots)
    if most > limit:
        yield f"{most} {what} at once, where {limit} may be, at {at:.3f} s"


def _report_of_samples(attempts: Mapping[str, list[Attempt]], report: BatchReport) -> Iterator[str]:
    for name, of_sample in attempts.items():
        times = report.samples.get(name)
        if times is None:
            continue
        last = next((attempt for attempt in reversed(of_sample) if not attempt.void), None)
        if last is not None and last.finishing:
            counts = (last.told("turn_ended"), last.told("environment_ended"))
            reported = (times.turns, times.environment_stages)
            if counts != reported:
                yield f"{name} had {counts} turns and environment stages, the report has {reported}"
        if times.admissions < len(of_sample):
            yield f"{name} was admitted {len(of_sample)} times, the report has {times.admissions}"


def _report_of_all(
    asked: Asked, sessions: Sequence[Session], attempts: Mapping[str, list[Attempt]], report: BatchReport
) -> Iterator[str]:
    totals = report.totals
    if (totals.samples, totals.finished, totals.withdrawn) != (len(asked.names), len(asked.names), 0):
        yield (
            f"the report has {totals.samples} samples, {totals.finished} finished and {totals.withdrawn} "
            f"withdrawn, of {len(asked.names)}"
        )
    admissions = sum(times.admissions for times in report.samples.values())
    if admissions != totals.samples + totals.readmissions:
        yield f"the report has {totals.readmissions} readmissions, with {admissions} admissions in all"
    # Each session waits for one admission at a time, and may die before it writes down that it got it.
    unknown = sum(session.over_at is not None for session in sessions)
    seen = sum(map(len, attempts.values()))
    if not seen <= admissions <= seen + unknown:
        yield f"{seen} admissions were written down and at most {unknown} can be missing, not {admissions}"
    every = [attempt for of_sample in attempts.values() for attempt in of_sample]
    for kind, reported in (("turn_ended", totals.turns), ("environment_ended", totals.environment_stages)):
        least = sum(attempt.acknowledged(kind) for attempt in every)
        most = sum(attempt.told(kind) for attempt in every)
        if not least <= reported <= most:
            yield f"{kind} was written down {least} to {most} times, the report has {reported}"


def _left_over(report: BatchReport, in_flight: Mapping[str, int]) -> Iterator[str]:
    for worker, requests in in_flight.items():
        if requests:
            yield f"{requests} requests are in flight on {worker}"
    totals = report.totals
    slots = ("environment_queued", "environment_running", "resident_queued", "resident")
    for what in ("waiting", "returned", "admitted", *slots):
        if count := getattr(totals, what):
            yield f"{count} samples are {what} in the end"
