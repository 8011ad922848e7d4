"""Files of recordings written out by hand, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from coresched.recording.events import (
    Admission,
    Attempt,
    BatchOptions,
    Completion,
    EnvironmentStage,
    Header,
    RecordedEvent,
    SourceName,
    TurnEnd,
    TurnStart,
)

EPOCH = 1_700_000_000.0
OPTIONS = BatchOptions(2, 1, "caas", 30.0, 1.0)


def write_source(
    folder: Path, source: SourceName, events: Sequence[RecordedEvent], *, id: str = "", late_s: float = 0.0
) -> Path:
    """One file, whose clock was at EPOCH + `late_s` where its times are 0."""
    folder.mkdir(exist_ok=True)
    batch = OPTIONS if source == "harness" else None
    header = Header(1, source, id or source, "host", 7, EPOCH + late_s, batch)
    path = folder / f"events-{source}-host-7-{id or 0}.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in [header, *events]))
    return path


def attempt(
    sample: str,
    sent_s: float,
    ended_s: float,
    prompt: int | None = None,
    output: int | None = None,
    **more: Any,
) -> Attempt:
    counts = {"prompt_tokens": prompt, "output_tokens": output}
    return Attempt(sample, sent_s=sent_s, ended_s=ended_s, **{"worker": "w0", **counts, **more})


def turn(sample: str, began_s: float, ended_s: float, *, failed: bool = False) -> list[RecordedEvent]:
    return [TurnStart(sample, began_s, None), TurnEnd(sample, began_s, ended_s, None, failed)]


def stage(sample: str, requested_s: float, started_s: float, ended_s: float) -> EnvironmentStage:
    return EnvironmentStage(sample, None, requested_s, started_s, ended_s, None)


HARNESS: list[RecordedEvent] = [
    Admission("a", 0.0, 0.0),
    *turn("a", 0.5, 2.5),
    stage("a", 2.5, 7.5, 9.5),  # 5 s in the queue
    *turn("a", 9.5, 11.0),
    Completion("a", 11.5),
]
TRANSPORT: list[RecordedEvent] = [
    attempt("a", 0.6, 0.8, reason="status 503", status=503),
    attempt("a", 1.0, 2.25, 100, 10, cached_tokens=0, answer_id="1"),
    attempt("a", 9.5, 10.75, 130, 5, cached_tokens=110, answer_id="2"),
]
"""One sample of two turns; the first request failed and was sent again after a pause."""
