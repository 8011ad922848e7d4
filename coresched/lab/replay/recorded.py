"""A replay or a recorded run read back from its folder, with its events; also one that was killed."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeVar

import msgspec

from coresched.errors import InputError
from coresched.lab.replay.events import AnyEvent, read_events
from coresched.lab.replay.plan import ReplaySettings
from coresched.lab.replay.record import EVENTS, RUN, SUMMARY
from coresched.lab.replay.summary import ReplayMetrics, measure
from coresched.recording.events import Inference
from coresched.recording.merge import Recording, read_recording
from coresched.recording.reader import recording_files

_File = TypeVar("_File")


class _Endpoint(msgspec.Struct, frozen=True):
    name: str
    model: str


class _Configuration(msgspec.Struct, frozen=True):
    started_at: str
    samples: int
    turns: int
    workload_digest: str
    settings: ReplaySettings
    endpoints: tuple[_Endpoint, ...]
    service: str | None
    configuration: str | None = None
    round: int | None = None


class _Summary(msgspec.Struct, frozen=True):
    status: str
    reason: str | None


@dataclass(frozen=True)
class RecordedRun:
    """What the files of a replay, or of a recording, tell.

    ``metrics`` are made of the events, as the replay itself does.
    """

    name: str
    digest: str
    """Equal for replays of the same prompts in the same order with the same pauses, and for recordings of the
    same samples."""
    started_at: str
    samples: int
    turns: int
    settings: ReplaySettings | None
    """None for a recording without a harness's."""
    models: tuple[str, ...]
    """What the endpoints serve, each once; none where that was not recorded."""
    service: str | None
    status: str
    """As in summary.json; "unfinished" without one: the replay was killed, or is still running."""
    reason: str | None
    events: Sequence[AnyEvent]
    metrics: ReplayMetrics
    recorded: bool = False
    """Whether it is a recording."""
    faults: Sequence[str] = ()
    """What of a recording could not be read or used, a line each."""
    configuration: str | None = None
    """Which of those of its command, and in which round of it."""
    round: int | None = None

    @property
    def workers(self) -> list[str]:
        return list(self.metrics.turns_by_worker)


def replay_files(folder: Path) -> list[Path]:
    """What a replay, or a recording, leaves in its folder."""
    return [*(folder / name for name in (RUN, EVENTS, SUMMARY)), *recording_files(folder)]


def read_recorded(folder: Path, *, name: str) -> RecordedRun:
    """The run of that folder. Raises InputError for a folder that is none, and for one without events."""
    if not os.path.exists(folder / RUN) and (files := recording_files(folder)):
        return _of_recording(read_recording(files), folder, name)
    configuration = _read(folder / RUN, _Configuration)
    summary = (
        _read(folder / SUMMARY, _Summary)
        if os.path.exists(folder / SUMMARY)
        else _Summary("unfinished", None)
    )
    try:
        events = read_events(folder / EVENTS)
    except OSError as error:
        raise InputError(
            f"{str(folder)!r} is no folder of a replay or recording: {error.strerror}: {error.filename}"
        ) from None
    if not events:
        raise InputError(f"{str(folder / EVENTS)!r} has no events; nothing was replayed")
    return RecordedRun(
        name=name,
        digest=configuration.workload_digest,
        started_at=configuration.started_at,
        samples=configuration.samples,
        turns=configuration.turns,
        settings=configuration.settings,
        models=tuple(dict.fromkeys(one.model for one in configuration.endpoints)),
        service=configuration.service,
        status=summary.status,
        reason=summary.reason,
        events=events,
        metrics=measure(
            events, samples=configuration.samples, endpoints=[one.name for one in configuration.endpoints]
        ),
        configuration=configuration.configuration,
        round=configuration.round,
    )


def _of_recording(recording: Recording, folder: Path, name: str) -> RecordedRun:
    events, samples, batch = recording.events, recording.samples, recording.batch
    if not events:
        raise InputError(f"{str(folder)!r} has a recording without events; nothing was run")
    names = "\n".join(sorted(sample.sample for sample in samples))
    settings = None
    if batch is not None:
        settings = ReplaySettings(
            sample_concurrency=batch.sample_concurrency,
            environment_concurrency=batch.environment_concurrency,
            environment_policy=batch.environment_policy,
            band_s=batch.band_s,
            bucket_s=batch.bucket_s,
        )
    left = Counter(sample.state for sample in samples)
    unfinished = [f"{left[state]:,} {state}" for state in ("unfinished", "withdrawn") if left[state]]
    turns = [event for event in events if isinstance(event, Inference)]
    return RecordedRun(
        name=name,
        digest="recording " + hashlib.sha256(names.encode()).hexdigest(),
        started_at=datetime.fromtimestamp(recording.began_at, timezone.utc).isoformat(timespec="seconds"),
        samples=len(samples),
        turns=len(turns),
        settings=settings,
        models=(),
        service=None,
        status=", ".join(unfinished) or "completed",
        reason=None,
        events=events,
        metrics=measure(events, samples=len(samples), endpoints=sorted({turn.worker for turn in turns})),
        recorded=True,
        faults=recording.faults,
    )


def _read(path: Path, kind: type[_File]) -> _File:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise InputError(
            f"{str(path.parent)!r} is no folder of a replay or recording: {error.strerror}: {error.filename}"
        ) from None
    except msgspec.DecodeError as error:
        raise InputError(f"{str(path)!r} is not what a replay writes: {error}") from None
