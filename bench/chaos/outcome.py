"""What came of a run: the checker's findings, and how much went on in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.chaos.attempts import Session
from bench.chaos.checker import (
    Findings,
    environment_slots,
    most_at_once,
    resident_slots,
    sample_slots,
    unacknowledged,
)
from bench.chaos.servers import Server
from coresched.client.local import BatchReport


@dataclass(frozen=True, slots=True)
class Measures:
    """`calls` are those whose answer a harness wrote down, heartbeats and submissions not among them."""

    wall_s: float
    makespan_s: float | None
    service_cpu_s: float
    worker_cpu_s: float
    calls: int
    turns: int
    failed_turns: int
    environment_stages: int
    reuse: float
    """Cached prompt tokens over prompt tokens."""
    most_samples: int
    most_stages: int
    most_residents: int
    """Most sample, environment and resident slots that harnesses held at a time."""
    sessions: int
    died: int
    lost_sessions: int
    readmissions: int
    unacknowledged: int
    """Finished samples whose process never heard that they were."""
    service_restarts_s: list[float]
    worker_restarts: int


@dataclass(frozen=True, slots=True)
class Outcome:
    findings: Findings
    measures: Measures


def measured(
    sessions: Sequence[Session],
    report: BatchReport,
    wall_s: float,
    service: Server,
    workers: Sequence[Server],
) -> Measures:
    attempts = [attempt for session in sessions for attempt in session.attempts.values()]
    events = [event for attempt in attempts for event in attempt.events]
    ends = sum(attempt.acknowledged(kind) for attempt in attempts for kind in _ENDS)
    prompt = sum(event.prompt_tokens for event in events)
    return Measures(
        wall_s=wall_s,
        makespan_s=report.totals.makespan_s,
        service_cpu_s=service.cpu_s,
        worker_cpu_s=sum(worker.cpu_s for worker in workers),
        calls=sum(event.asked_at is not None for event in events) + ends,
        turns=sum(event.kind == "turn_ended" for event in events),
        failed_turns=sum(event.kind == "turn_failed" for event in events),
        environment_stages=sum(event.kind == "environment_ended" for event in events),
        reuse=sum(event.cached_tokens for event in events) / prompt if prompt else 0.0,
        most_samples=most_at_once(sample_slots(sessions))[0],
        most_stages=most_at_once(environment_slots(sessions))[0],
        most_residents=most_at_once(resident_slots(sessions))[0],
        sessions=len(sessions),
        died=sum(session.died_at is not None for session in sessions),
        lost_sessions=sum(session.lost for session in sessions),
        readmissions=report.totals.readmissions,
        unacknowledged=sum(map(unacknowledged, attempts)),
        service_restarts_s=service.restarts,
        worker_restarts=sum(len(worker.restarts) for worker in workers),
    )


_ENDS = ("turn_ended", "turn_failed", "environment_ended", "resident_ended")
"""Written down before the service is told, which answers before the next event."""
