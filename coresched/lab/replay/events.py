"""What happens in a replay, one JSON object a line, written as it happens."""

from pathlib import Path
from types import TracebackType
from typing import Annotated, BinaryIO

import msgspec

from coresched.errors import InputError

Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Count = Annotated[int, msgspec.Meta(ge=0, le=10**12)]


class Event(msgspec.Struct, frozen=True, tag_field="event", omit_defaults=False):
    """Something that happened to a sample. Times are seconds since the batch began, times `speed`."""

    sample: str


class Admission(Event, frozen=True, tag="admission"):
    """The sample got its slot."""

    at_s: Seconds


class Inference(Event, frozen=True, tag="inference"):
    """A turn, from the moment its request was sent to the end of its answer."""

    turn: Count
    """From 0."""
    worker: str
    sent_s: Seconds
    ended_s: Seconds
    prompt_tokens: Count
    cached_tokens: Count | None
    output_tokens: Count
    first_token_s: Seconds | None
    """Since ``sent_s``, on the engine's clock."""


class FailedInference(Event, frozen=True, tag="failed-inference"):
    """A request without a usable answer; unless the replay ends there, the turn is tried again."""

    turn: Count
    worker: str
    sent_s: Seconds
    ended_s: Seconds
    reason: str


class EnvironmentStage(Event, frozen=True, tag="environment"):
    """A stage from the request for its slot over the grant to the end of the pause."""

    turn: Count
    """The turn before it."""
    requested_s: Seconds
    started_s: Seconds
    ended_s: Seconds
    duration_s: Seconds
    """As recorded: what ``ended_s - started_s`` should be."""


class Completion(Event, frozen=True, tag="completion"):
    """The sample's last stage ended."""

    at_s: Seconds


AnyEvent = Admission | Inference | FailedInference | EnvironmentStage | Completion

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AnyEvent).decode


class EventLog:
    """Events in a new file and in memory; what was added is in the file, whatever happens next."""

    def __init__(self, path: Path) -> None:
        self.events: list[AnyEvent] = []
        self._file: BinaryIO = open(path, "xb", buffering=0)  # noqa: SIM115 (closed by the block)

    def add(self, event: AnyEvent) -> None:
        self.events.append(event)
        self._file.write(_encode(event) + b"\n")

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
