"""What the importers hand over: the model calls of one sample as a file records them, or why there are none.

The formats differ in where they keep tokens and times; what follows from them does not, and is worked out
once, in `assembly`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from coresched.trajectory.schema import DurationQuality

if TYPE_CHECKING:
    from coresched.trajectory.importers.document import Document, Head
    from coresched.trajectory.importers.tokens import TokenCounter


@dataclass(slots=True)
class Stage:
    """The tool calls between two model calls, as one environment stage."""

    duration_s: float | None = None
    """Seconds, without a wait for a slot where the format tells it apart; None: not recorded."""
    quality: DurationQuality = "absent"
    """How `duration_s` was obtained; absent exactly where it is None."""
    n_calls: int = 1
    kind: str | None = None


@dataclass(slots=True)
class Call:
    """One model call that was answered, and the stage behind it. None: not recorded."""

    prompt_tokens: int | None = None
    """The whole prompt by the provider's count, cached tokens included."""
    output_tokens: int | None = None
    """By the provider's count, reasoning included."""
    reasoning_tokens: int = 0
    """How many of `output_tokens` are reasoning, which the next prompt does not carry."""
    dropped: bool = False
    """The next prompt carries nothing of this reply: the harness could not use it."""
    added_text_tokens: int = 0
    """Counted on the text that the prompt has beyond the call before and its reply (the first: all of it)."""
    reply_text_tokens: int = 0
    """Counted on the reply's text. These two serve where the provider's counts are missing."""
    infer_s: float | None = None
    stage: Stage | None = None


@dataclass(slots=True)
class Sample:
    """One recorded sample: its model calls in order."""

    id: str
    where: str
    """The place in the file, for messages; empty where the file is the sample."""
    calls: list[Call]
    model: str | None = None
    anomalies: list[str] = field(default_factory=list)
    """What was left out because a clock cannot have been right, one clause each."""
    inference: str | None = None
    """What its inference times are, where that is not what its format says; the same of durations."""
    environment: str | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that could not be imported."""

    where: str
    why: str


class Malformed(Exception):
    """A record that is not what its format has; the message says where in it, and what belongs there."""


class Importer(Protocol):
    """One format: how a file of it is told, what its figures are worth, and its samples."""

    name: str
    """As `--from` takes it."""
    files: str
    """Which files have it, for a person."""
    tokens: str
    """Where token counts come from."""
    inference: str
    """What an inference time is, or why there is none; its first word is a quality."""
    environment: str
    """The same of environment durations."""

    def recognises(self, head: "Head") -> bool:
        """Whether a file whose first record is `head` is of this format."""

    def samples(self, document: "Document", count: "TokenCounter") -> Iterator[Sample | Skipped]:
        """The samples of the file, and the records that are none. Raises Malformed where the rest is lost."""
