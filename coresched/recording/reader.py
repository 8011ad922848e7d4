"""The files of a recording, read back onto one clock. What cannot be read is told, and the rest is used."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from coresched.errors import InputError
from coresched.recording.events import VERSION, Header, Lost, RecordedEvent

_INSTANTS = ("at_s", "submitted_s", "sent_s", "began_s", "requested_s", "started_s", "ended_s")

_decode_header = msgspec.json.Decoder(Header).decode
_decode_event = msgspec.json.Decoder(RecordedEvent).decode

SampleEvent = TypeVar("SampleEvent", bound=msgspec.Struct)


@dataclass
class Source:
    """One file: who wrote it, and its events in seconds since `Sources.began_at`."""

    header: Header
    events: list[RecordedEvent]


@dataclass
class Sources:
    """The files of a recording."""

    began_at: float = 0.0
    """Unix seconds of the first event."""
    each: list[Source] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """One line for each thing that could not be read, with file and position."""


def recording_files(folder: str | os.PathLike[str]) -> list[Path]:
    """The files of recordings in a folder, in order of name; none if there are none."""
    try:
        return sorted(Path(folder).glob("events-*.jsonl"))
    except OSError:
        return []


def read_sources(paths: Sequence[Path]) -> Sources:
    """Read the files. A file that is there twice, also shorter, counts once, and so does a line.

    Raises InputError for a file that cannot be opened, and if none of them is of a recording.
    """
    sources = Sources()
    by_id: dict[str, dict[bytes, RecordedEvent]] = {}
    headers: dict[str, Header] = {}
    for path in paths:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
        lines = content.split(b"\n")
        header = _header(path, lines[0], sources.faults) if len(lines) > 1 else None
        if header is None:
            if len(lines) == 1:
                sources.faults.append(f"{path}: line 1: it breaks off; its writer was killed as it began")
            continue
        headers[header.id] = header
        _read_events(path, lines[1:], by_id.setdefault(header.id, {}), sources.faults)
    if not headers:
        why = sources.faults[0] if sources.faults else "there is no file of a recording"
        raise InputError(f"nothing was recorded: {why}")
    starts = [
        headers[id].clock_zero_s + min(instants)
        for id, events in by_id.items()
        for event in events.values()
        if (instants := _instants(event))
    ]
    sources.began_at = min(starts, default=min(header.clock_zero_s for header in headers.values()))
    for id, header in headers.items():
        late_s = header.clock_zero_s - sources.began_at
        events = [_later(event, late_s) for event in by_id[id].values()]
        sources.each.append(Source(header, events))
    return sources


def _header(path: Path, line: bytes, faults: list[str]) -> Header | None:
    try:
        header = _decode_header(line)
    except msgspec.DecodeError as error:
        faults.append(f"{path}: line 1: it is not the first line of a recording: {error}")
        return None
    if header.recording != VERSION:
        faults.append(
            f"{path}: line 1: it is of version {header.recording}, and this reads version {VERSION}; "
            "read it with the coresched that wrote it"
        )
        return None
    return header


def _read_events(
    path: Path, lines: Iterable[bytes], events: dict[bytes, RecordedEvent], faults: list[str]
) -> None:
    *whole, rest = lines
    for number, line in enumerate(whole, start=2):
        if not line or line in events:  # empty after a line that was torn by a full disk
            continue
        try:
            event = _decode_event(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            faults.append(f"{path}: line {number}: it is no event: {error}")
            continue
        if not _in_order(event):
            faults.append(f"{path}: line {number}: its end is before its beginning")
            continue
        if isinstance(event, Lost):
            what = "1 event is" if event.count == 1 else f"{event.count:,} events are"
            faults.append(f"{path}: line {number}: {what} missing before it, which could not be written")
        events[line] = event
    if rest:
        faults.append(f"{path}: its last line breaks off; its writer was killed, or is still writing")


def _instants(event: RecordedEvent) -> list[float]:
    """The times of an event, in the order in which they must have been but for `submitted_s`."""
    values = [getattr(event, name, None) for name in _INSTANTS]
    return [value for value in values if value is not None]


def _in_order(event: RecordedEvent) -> bool:
    instants = _instants(event)
    if isinstance(event, Lost) or hasattr(event, "at_s"):
        return True
    return instants == sorted(instants)


def _later(event: RecordedEvent, by_s: float) -> RecordedEvent:
    shifted = {name: value + by_s for name in _INSTANTS if (value := getattr(event, name, None)) is not None}
    return msgspec.structs.replace(event, **shifted)
