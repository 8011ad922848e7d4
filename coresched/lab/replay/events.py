"""The file of a replay's events, which are written as they happen. Their kinds are those of recordings."""

from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import msgspec

from coresched.errors import InputError
from coresched.recording.events import Admission as Admission
from coresched.recording.events import AnyEvent as AnyEvent
from coresched.recording.events import Completion as Completion
from coresched.recording.events import EnvironmentStage as EnvironmentStage
from coresched.recording.events import FailedInference as FailedInference
from coresched.recording.events import Inference as Inference
from coresched.recording.events import ReplayEvent
from coresched.recording.events import Withdrawal as Withdrawal

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ReplayEvent).decode


class EventLog:
    """Events in a new file and in memory; what was added is in the file, whatever happens next."""

    def __init__(self, path: Path) -> None:
        self.events: list[AnyEvent] = []
        self._path = path
        self._file: BinaryIO = open(path, "xb", buffering=0)  # noqa: SIM115 (closed by the block)

    def add(self, event: AnyEvent) -> None:
        self.events.append(event)
        try:
            self._file.write(_encode(event) + b"\n")
        except OSError as error:  # a full disk, which does not say of which file
            raise OSError(error.errno, error.strerror, str(self._path)) from None

    def __enter__(self) -> "EventLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()


def read_events(path: Path) -> list[AnyEvent]:
    """The events of a run, also of one that was killed: half a last line is left out.

    Raises InputError, naming file and line, for one that is no event, or ends before it began.
    """
    events: list[AnyEvent] = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            event = _decode(line)
        except msgspec.DecodeError as error:
            raise InputError(f"{str(path)!r} line {number} is no event of a replay: {error}") from None
        times = _times(event)
        if times != sorted(times):
            raise InputError(
                f"{str(path)!r} line {number}: {type(event).__name__} ends before it began: {times}"
            )
        events.append(event)
    return events


def _times(event: AnyEvent) -> list[float]:
    """The times of an event, in the order in which they must have been."""
    if isinstance(event, Inference | FailedInference):
        return [event.sent_s, event.ended_s]
    if isinstance(event, EnvironmentStage):
        return [event.requested_s, event.started_s, event.ended_s]
    return [event.at_s]
