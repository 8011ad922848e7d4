"""The samples of a batch as the ledger keeps them, and which of them are open, in the order of admission."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coresched.batch.admission import AdmissionOrder, Entry
from coresched.service.batches.facts import AdmissionPolicy

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
    expected: float | None = None
    """How long it will be, as was told with its submission."""
    entry: Entry[SampleRecord] | None = None
    """Its own among the open samples."""
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
    """Finds the open sample that is next in the order of admission; a step takes O(log samples)."""

    def __init__(self, policy: AdmissionPolicy) -> None:
        self._order: AdmissionOrder[SampleRecord] = AdmissionOrder(policy)

    def __len__(self) -> int:
        return len(self._order)

    def add(self, sample: SampleRecord) -> None:
        """The sample is new, and open."""
        sample.entry = self._order.add(sample, sample.expected)

    def take(self, sample: SampleRecord) -> None:
        assert sample.entry is not None
        sample.open = False
        self._order.take(sample.entry)

    def put_back(self, sample: SampleRecord) -> None:
        assert sample.entry is not None
        sample.open = True
        self._order.put_back(sample.entry)

    def first(self) -> SampleRecord | None:
        entry = self._order.first()
        return None if entry is None else entry.item
