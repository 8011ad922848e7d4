"""Replays and recorded runs in the Chrome trace event format, which Perfetto and chrome://tracing open.

Each run is two processes there: its samples, a thread each with model calls, waits and environment stages,
and its workers, with their requests in flight as counters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from coresched.lab.replay.events import Completion, EnvironmentStage, FailedInference, Inference
from coresched.lab.replay.recorded import RecordedRun


def perfetto_trace(runs: Sequence[RecordedRun]) -> bytes:
    """A JSON object with ``traceEvents``; times are microseconds since each run's batch began."""
    events = [event for number, run in enumerate(runs) for event in _run_events(run, 2 * number + 1)]
    return msgspec.json.encode({"displayTimeUnit": "ms", "traceEvents": events})


def _run_events(run: RecordedRun, process: int) -> Iterator[dict[str, Any]]:
    samples = dict.fromkeys(event.sample for event in run.events)
    thread = {sample: number for number, sample in enumerate(samples, start=1)}
    yield _name("process_name", process, 0, f"{run.name}: samples")
    yield _name("process_name", process + 1, 0, f"{run.name}: workers")
    for sample, number in thread.items():
        yield _name("thread_name", process, number, sample)
    for event in run.events:
        place = {"pid": process, "tid": thread[event.sample]}
        if isinstance(event, Inference):
            told = {
                "worker": event.worker,
                "prompt_tokens": event.prompt_tokens,
                "cached_tokens": event.cached_tokens,
                "output_tokens": event.output_tokens,
            }
            yield place | _slice(f"turn {event.turn + 1}", event.sent_s, event.ended_s, told)
        elif isinstance(event, FailedInference):
            told = {"worker": event.worker, "reason": event.reason}
            yield place | _slice(f"turn {event.turn + 1} failed", event.sent_s, event.ended_s, told)
        elif isinstance(event, EnvironmentStage):
            if event.started_s > event.requested_s:
                yield place | _slice("waits for a slot", event.requested_s, event.started_s, {})
            stage: dict[str, Any] = {} if event.turn is None else {"turn": event.turn + 1}
            if event.duration_s is not None:
                stage["recorded_s"] = event.duration_s
            yield place | _slice("environment", event.started_s, event.ended_s, stage)
        elif isinstance(event, Completion):
            yield place | {"ph": "i", "s": "t", "name": "completed", "ts": event.at_s * 1e6}
    yield from _counters(run, process + 1)


def _counters(run: RecordedRun, process: int) -> Iterator[dict[str, Any]]:
    changes = [
        (at, change, event.worker)
        for event in run.events
        if isinstance(event, Inference | FailedInference)
        for at, change in ((event.sent_s, 1), (event.ended_s, -1))
    ]
    changes.sort(key=lambda change: (change[0], -change[1]))
    in_flight: dict[str, int] = {}
    for at, change, worker in changes:
        in_flight[worker] = in_flight.get(worker, 0) + change
        yield {
            "ph": "C",
            "name": f"{worker} in flight",
            "pid": process,
            "tid": 0,
            "ts": at * 1e6,
            "args": {"requests": in_flight[worker]},
        }


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _slice(name: str, start_s: float, end_s: float, told: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "name": name, "ts": start_s * 1e6, "dur": (end_s - start_s) * 1e6, "args": told}
