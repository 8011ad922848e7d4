"""What happens to the samples of a batch, one JSON object a line.

A replay writes the first six kinds; its times are seconds since the batch began, times its speed. A recording
is written by several at once, who each see a part: what they write is in seconds since their own file began,
which its first line tells, and `merge` makes the kinds of a replay of it.
"""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Count = Annotated[int, msgspec.Meta(ge=0, le=10**12)]

SourceName: TypeAlias = Literal["harness", "transport", "gateway"]

VERSION: Final = 1


class Event(msgspec.Struct, frozen=True, tag_field="event", omit_defaults=True):
    """Something that happened to a sample."""

    sample: str
    """Its id, which is its trajectory label."""


class Admission(Event, frozen=True, tag="admission"):
    """The sample got its slot."""

    at_s: Seconds
    submitted_s: Seconds | None = None
    """When this process asked for it; None where another did."""


class Inference(Event, frozen=True, tag="inference"):
    """A turn, from the moment its request was sent to the end of its answer."""

    turn: Count
    """From 0."""
    worker: str
    sent_s: Seconds
    ended_s: Seconds
    prompt_tokens: Count | None
    """The whole prompt, cached tokens included; None where nobody told the usage, as with the next two."""
    cached_tokens: Count | None
    output_tokens: Count | None
    first_token_s: Seconds | None
    """Since ``sent_s``: on the engine's clock in a replay, to the first byte of a stream in a recording."""
    reasoning_tokens: Count | None = None
    """How many of ``output_tokens`` are reasoning, where the engine says it."""


class FailedInference(Event, frozen=True, tag="failed-inference"):
    """A request without a usable answer; unless the run ends there, the turn is tried again."""

    turn: Count
    worker: str
    sent_s: Seconds
    ended_s: Seconds
    reason: str


class EnvironmentStage(Event, frozen=True, tag="environment"):
    """A stage from the request for its slot over the grant to the end of the job."""

    turn: Count | None
    """The turn before it; None before the first, and in what a harness writes, which `merge` completes."""
    requested_s: Seconds
    started_s: Seconds
    ended_s: Seconds
    duration_s: Seconds | None
    """In a replay as recorded: what ``ended_s - started_s`` should be. None in a recording."""
    resumed_s: Seconds | None = None
    """When the next turn began; in a recording that was merged, if one did."""
    failed: bool = False
    """The block of the stage raised."""


class Completion(Event, frozen=True, tag="completion"):
    """The sample's last stage ended."""

    at_s: Seconds


class Withdrawal(Event, frozen=True, tag="withdrawal"):
    """The sample ended by an exception, or with a stage still open."""

    at_s: Seconds


class TurnStart(Event, frozen=True, tag="turn-start"):
    """The block of a turn began: the harness resumed after the environment stage before it."""

    at_s: Seconds
    worker: str | None
    """Where the batch routed the turn; None without workers."""


class TurnEnd(Event, frozen=True, tag="turn-end"):
    """The block of a turn ended. The counts are what the harness told by ``turn.usage``."""

    began_s: Seconds
    ended_s: Seconds
    worker: str | None
    failed: bool
    prompt_tokens: Count | None = None
    cached_tokens: Count | None = None
    output_tokens: Count | None = None


class Attempt(Event, frozen=True, tag="attempt"):
    """One HTTP request of a turn, as a transport or a gateway sent it. The counts are the answer's usage."""

    worker: str
    sent_s: Seconds
    ended_s: Seconds
    first_byte_s: Seconds | None = None
    """Of the answer's body, since ``sent_s``; None if none came."""
    streamed: bool = False
    status: Count | None = None
    """Of HTTP; None if no answer began."""
    reason: str | None = None
    """Why it is no model call; None for one that was answered to its end."""
    answer_id: str | None = None
    prompt_tokens: Count | None = None
    cached_tokens: Count | None = None
    output_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class Lost(msgspec.Struct, frozen=True, tag_field="event", tag="lost"):
    """So many events before this line could not be written."""

    count: Count
    at_s: Seconds


class BatchOptions(msgspec.Struct, frozen=True):
    """The options of the batch whose harness writes."""

    sample_concurrency: int
    environment_concurrency: int | None
    environment_policy: Literal["fcfs", "caas"]
    band_s: float
    bucket_s: float


class Header(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first line of a file of a recording."""

    recording: int
    """The version of the format, which is VERSION."""
    source: SourceName
    id: str
    """Of this file; a copy of it has the same."""
    host: str
    pid: int
    clock_zero_s: float
    """Unix seconds by the wall clock of the host where the file's times are 0. They run monotonically."""
    batch: BatchOptions | None = None


ReplayEvent = Admission | Inference | FailedInference | EnvironmentStage | Completion
"""What a replay writes."""

AnyEvent = ReplayEvent | Withdrawal
"""The same, and what a recording becomes when it is merged."""

RecordedEvent = Admission | TurnStart | TurnEnd | Attempt | EnvironmentStage | Completion | Withdrawal | Lost
"""What a recorder writes."""
