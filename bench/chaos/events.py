"""What a harness process writes down as it happens: JSON lines that survive the death of the process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

Kind = Literal[
    "joined",  # a session has begun
    "admitted",  # a sample was handed to this session
    "resident_granted",
    "turn_started",  # routed to `worker`
    "turn_ended",  # with the counts of the worker's answer; before the service is told
    "turn_failed",  # as turn_ended; the worker gave no answer
    "environment_granted",
    "environment_ended",  # before the service is told
    "resident_ended",  # all stages are done; before the service is told
    "finishing",  # before the service is told
    "finished",  # the service has acknowledged it
    "session_lost",  # what the session held is not its own any more
    "left",  # the service has acknowledged that the session is over
]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`at` and `asked_at` are CLOCK_MONOTONIC seconds, one clock for all processes of a machine.

    Events that are answers of the service carry `asked_at`, when the call was first sent: the service has
    seen the session alive no earlier than that.
    """

    at: float
    kind: Kind
    session: int
    sample: str = ""
    asked_at: float | None = None
    worker: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Event).decode


class EventLog:
    """The file of one process. What was written is with the operating system when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.session = 0

    def write(
        self,
        kind: Kind,
        sample: str = "",
        *,
        asked_at: float | None = None,
        worker: str = "",
        prompt_tokens: int = 0,
        cached_tokens: int = 0,
    ) -> None:
        event = Event(
            at=time.monotonic(),
            kind=kind,
            session=self.session,
            sample=sample,
            asked_at=asked_at,
            worker=worker,
            prompt_tokens=prompt_tokens,
            cached_tokens=cached_tokens,
        )
        os.write(self._file, _encode(event) + b"\n")


def read_events(folder: Path) -> dict[str, list[Event]]:
    """The events of each process, by its name. Raises msgspec.DecodeError for a line that is none.

    A last line without its end is what a killed process was writing, and left out.
    """
    return {path.stem: _events(path.read_bytes()) for path in sorted(folder.glob("*.jsonl"))}


def _events(data: bytes) -> list[Event]:
    return list(map(_decode, _whole_lines(data)))


def _whole_lines(data: bytes) -> Iterable[bytes]:
    return data[: data.rfind(b"\n") + 1].splitlines()
