"""The samples of a batch as the ledger keeps them, and which of them are open, in order of submission."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coresched.service.batches.sessions import Session


@dataclass(frozen=True, slots=True)
class Asked:
    """A call: its request id, and the digest of its content."""

    request_id: str
    digest: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """A wait for a slot that was given up; its call, sent again, is queued as of `since`."""

    asked: Asked
    since: float


@dataclass(slots=True, eq=False)
class SampleRecord:
    """One sample, beside what the coordinator knows of it."""

    name: str
    place: int
    submitted_at: float
    holder: Session | None = None
    open: bool = True
    """Claimed by no session and not ended."""
    listed: bool = False
    """Whether its place is among the places that OpenSamples goes back to."""
    asked: Asked | None = None
    """The call that waits for the admission or a slot."""
    since: float = 0.0
    """When the present wait or stage began."""
    begun: bool = False
    """Whether any stage began since the admission."""
    worker: str = ""
    """Where the present turn was routed."""
    max_s: float | None = None
    """Longest that the present environment slot may be held."""
    waited_s: float = 0.0
    """The last wait for admission or for a slot that ended well, in seconds."""
    spent_s: float = 0.0
    """The last stage that ended, in seconds."""
    expired_s: float | None = None
    """How long a slot was held that returned at its maximum, until its session is told."""
    dropped: Dropped | None = None
    resident_since: float | None = None
    """When its resident slot was granted; None while it holds none."""
    resident_spent_s: float = 0.0
    """How long the last one was held that ended, in seconds."""
    turns: int | None = None
    """Turns completed since the admission; None while it is not admitted."""


class OpenSamples:
    """Finds the first open sample of a growing sequence; a step takes O(log samples) or less, amortised."""

    def __init__(self, samples: Sequence[SampleRecord]) -> None:
        self._samples = samples
        self._next = 0  # no sample before this place is open, but for those in _again
        self._again: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self) -> None:
        """The sample at the end of the sequence is new, and open."""
        self._count += 1

    def take(self, sample: SampleRecord) -> None:
        sample.open = False
        self._count -= 1

    def put_back(self, sample: SampleRecord) -> None:
        sample.open = True
        self._count += 1
        if sample.place < self._next and not sample.listed:
            sample.listed = True
            heappush(self._again, sample.place)

    def clear(self) -> None:
        """None is open from now on."""
        self._next = len(self._samples)
        self._again.clear()
        self._count = 0

    def first(self) -> SampleRecord | None:
        while self._again:
            sample = self._samples[self._again[0]]
            if sample.open:
                return sample
            heappop(self._again)
            sample.listed = False
        while self._next < len(self._samples):
            sample = self._samples[self._next]
            if sample.open:
                return sample
            self._next += 1
        return None
