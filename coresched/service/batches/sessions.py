"""One client process in one batch, as the ledger keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coresched.service.batches.batch import Batch
    from coresched.service.batches.samples import SampleRecord


@dataclass(slots=True, eq=False)
class Session:
    """`ended` says how it ended, in words, and is empty while it lives."""

    name: str
    batch: Batch
    grace_s: float
    held: dict[str, SampleRecord] = field(default_factory=dict)
    ended: str = ""
