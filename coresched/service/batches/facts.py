"""What happened, as the journal keeps it: applied in order to an empty ledger, facts give its state again.

Admissions and grants are no facts: they follow from these, with the times they happened at.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Policy = Literal["caas", "fcfs"]
AdmissionPolicy = Literal["submission", "longest-expected-first"]


class Fact(msgspec.Struct, frozen=True, tag=True, kw_only=True, omit_defaults=True):
    """`at` is seconds on the service's clock, which goes on over restarts and never back.

    A fact that a call caused carries the call's `request_id` and `digest` (of its content, hexadecimal): the
    same call, sent again after a restart, then gets the same answer.
    """

    at: float
    request_id: str = ""
    digest: str = ""


class BatchOpened(Fact, frozen=True, kw_only=True):
    """`key` names the batch within the journal: names may come again once a batch was closed."""

    key: int
    tenant: str
    batch: str
    sample_concurrency: int
    environment_concurrency: int | None
    policy: Policy
    band_s: float
    bucket_s: float
    resident_concurrency: int | None = None
    """Not in journals written before there were resident slots."""
    admission_policy: AdmissionPolicy = "submission"


class SessionOpened(Fact, frozen=True, kw_only=True):
    key: int
    session: str
    grace_s: float
    opened: bool = False
    """Whether the same call opened the batch."""


class SamplesSubmitted(Fact, frozen=True, kw_only=True):
    key: int
    session: str
    samples: list[str]
    expected: list[float] | None = None
    """How long each is expected to be; below 0 where nothing is known."""


class SampleClaimed(Fact, frozen=True, kw_only=True):
    """A session waits for the admission of the sample; the call is the wait's.

    Of a sample that the session holds already, and began nothing with: the answer goes to this call instead.
    """

    key: int
    session: str
    sample: str


class SampleGivenBack(Fact, frozen=True, kw_only=True):
    """The wait for admission was given up."""

    key: int
    sample: str


class TurnStarted(Fact, frozen=True, kw_only=True):
    """`worker` is what routing chose; empty without workers."""

    key: int
    sample: str
    worker: str


class TurnFinished(Fact, frozen=True, kw_only=True):
    key: int
    sample: str
    failed: bool


class EnvironmentRequested(Fact, frozen=True, kw_only=True):
    """`since`: when the wait began, earlier than `at` if it goes on after a break. `max_s` limits it."""

    key: int
    sample: str
    since: float
    max_s: float | None = None


class EnvironmentEnded(Fact, frozen=True, kw_only=True):
    """`how`: completed or failed by its session, dropped while it waited, expired at its maximum.

    Completed or failed after it expired: the session has been told so.
    """

    key: int
    sample: str
    how: Literal["completed", "failed", "dropped", "expired"]


class ResidentRequested(Fact, frozen=True, kw_only=True):
    """`since` as in EnvironmentRequested."""

    key: int
    sample: str
    since: float


class ResidentEnded(Fact, frozen=True, kw_only=True):
    """`how`: completed or failed by its session, or dropped while it waited."""

    key: int
    sample: str
    how: Literal["completed", "failed", "dropped"]


class SampleEnded(Fact, frozen=True, kw_only=True):
    key: int
    sample: str
    withdrawn: bool


class SessionEnded(Fact, frozen=True, kw_only=True):
    """`left`: what the session held is withdrawn. Else it was silent too long, and its samples go back."""

    key: int
    session: str
    left: bool
    keep_open: bool = False


class BatchClosed(Fact, frozen=True, kw_only=True):
    """`abandoned`: nobody asked for it; it made room for another batch."""

    key: int
    abandoned: bool = False


class WorkerRegistered(Fact, frozen=True, kw_only=True):
    """`tenant` is whose call it was; workers are of all tenants."""

    tenant: str = ""
    worker: str
    weight: float


class WorkerDrained(Fact, frozen=True, kw_only=True):
    """`in_flight` is what was in flight there then, which the call was answered."""

    tenant: str = ""
    worker: str
    in_flight: int = 0


class WorkerRemoved(Fact, frozen=True, kw_only=True):
    """As WorkerDrained."""

    tenant: str = ""
    worker: str
    in_flight: int = 0


BatchFact = (
    BatchOpened
    | SessionOpened
    | SamplesSubmitted
    | SampleClaimed
    | SampleGivenBack
    | TurnStarted
    | TurnFinished
    | EnvironmentRequested
    | EnvironmentEnded
    | ResidentRequested
    | ResidentEnded
    | SampleEnded
    | SessionEnded
    | BatchClosed
)
"""What the ledger of batches takes."""

WorkerFact = WorkerRegistered | WorkerDrained | WorkerRemoved
"""What the routing table takes."""

AnyFact = BatchFact | WorkerFact
