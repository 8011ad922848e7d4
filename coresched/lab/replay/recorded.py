"""A replay read back from its folder, with its events; also one that was stopped, or killed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from coresched.errors import InputError
from coresched.lab.replay.events import AnyEvent, read_events
from coresched.lab.replay.plan import ReplaySettings
from coresched.lab.replay.record import EVENTS, RUN, SUMMARY
from coresched.lab.replay.summary import ReplayMetrics, measure

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
    """What the files of a replay tell. ``metrics`` are made of the events, as the replay itself does."""

    name: str
    digest: str
    """Equal for runs of the same prompts in the same order with the same pauses."""
    started_at: str
    samples: int
    turns: int
    settings: ReplaySettings
    models: tuple[str, ...]
    """What the endpoints serve, each once."""
    service: str | None
    status: str
    """As in summary.json; "unfinished" without one: the replay was killed, or is still running."""
    reason: str | None
    events: Sequence[AnyEvent]
    metrics: ReplayMetrics
    configuration: str | None = None
    """Which of those of its command, and in which round of it."""
    round: int | None = None

    @property
    def workers(self) -> list[str]:
        return list(self.metrics.turns_by_worker)


def replay_files(folder: Path) -> list[Path]:
    """What a replay leaves in its folder."""
    return [folder / name for name in (RUN, EVENTS, SUMMARY)]


def read_recorded(folder: Path, *, name: str) -> RecordedRun:
    """The run of that folder. Raises InputError for a folder that is none, and for one without events."""
    configuration = _read(folder / RUN, _Configuration)
    summary = (
        _read(folder / SUMMARY, _Summary) if (folder / SUMMARY).exists() else _Summary("unfinished", None)
    )
    try:
        events = read_events(folder / EVENTS)
    except OSError as error:
        raise InputError(
            f"{str(folder)!r} is no folder of a replay: {error.strerror}: {error.filename}"
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


def _read(path: Path, kind: type[_File]) -> _File:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise InputError(
            f"{str(path.parent)!r} is no folder of a replay: {error.strerror}: {error.filename}"
        ) from None
    except msgspec.DecodeError as error:
        raise InputError(f"{str(path)!r} is not what a replay writes: {error}") from None
