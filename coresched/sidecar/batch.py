"""The batch whose slots the sidecar hands out: its own, or one that a service holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from coresched.client.connect import connect
from coresched.client.embedded import Batch as OwnBatch

if TYPE_CHECKING:
    from coresched.sidecar.trajectories import Batch


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """As in `coresched.Batch`. `service` and `name`: the batch of that name there instead."""

    sample_concurrency: int
    environment_concurrency: int | None = None
    environment_policy: Literal["fcfs", "caas"] = "caas"
    band_s: float = 30.0
    bucket_s: float = 1.0
    service: str | None = None
    name: str | None = None
    credentials: dict[str, Any] = field(default_factory=dict)
    """Of `coresched.connect`: token, ca, certificate, key."""
    record: str | None = None
    """The folder of its recording."""
    history: str | None = None
    """The file by which the longest expected are admitted first; without it, in submission order."""


def make_batch(options: BatchOptions) -> Batch:
    """The batch, to be entered. Raises TypeError or ValueError for a bad option."""
    schedule: dict[str, Any] = {
        "sample_concurrency": options.sample_concurrency,
        "environment_concurrency": options.environment_concurrency,
        "environment_policy": options.environment_policy,
        "band_s": options.band_s,
        "bucket_s": options.bucket_s,
        "record": options.record,
    }
    if options.history is not None:
        schedule |= {"admission_policy": "longest-expected-first", "history": options.history}
    if options.service is None:
        return OwnBatch(**schedule)
    assert options.name is not None
    return connect(options.service, batch=options.name, **schedule, **options.credentials)
