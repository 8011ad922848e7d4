"""What one fact brought about, beyond what it says itself: for those who wait, route, watch and time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from coresched.service.batches.batch import Batch
    from coresched.service.batches.samples import Asked, SampleRecord
    from coresched.service.batches.sessions import Session


@dataclass(slots=True, eq=False)
class Effects:
    batch: Batch
    admitted: list[tuple[SampleRecord, Asked | None]] = field(default_factory=list)
    """Samples whose wait for admission ended with it, and the calls that get the answers."""
    granted: list[tuple[SampleRecord, Asked | None]] = field(default_factory=list)
    """The same for environment slots."""
    housed: list[tuple[SampleRecord, Asked | None]] = field(default_factory=list)
    """The same for resident slots."""
    turns_ended: list[SampleRecord] = field(default_factory=list)
    """Samples whose inference turn ended, in whatever way."""
    waits_ended: list[SampleRecord] = field(default_factory=list)
    """Samples whose wait ended without admission or slot."""
    sessions_ended: list[Session] = field(default_factory=list)
    closed: bool = False
    """Whether the batch was closed."""
    told_again: bool = False
    """Whether the first of admitted had been admitted before, and only its call is another."""
    told_expired: bool = False
    """Whether a session was told that its environment slot had returned by itself."""
    forgotten: list[int] = field(default_factory=list)
    """Keys of batches that were closed and are not known any more."""
    answers: list[tuple[SampleRecord, Message]] = field(default_factory=list)
    """What the waits of admitted, granted and housed are answered with."""
