"""Batches for tests: embedded, and of a service in a process of its own, behind one interface."""

from __future__ import annotations

from itertools import count
from typing import Any

import coresched
from coresched import sync

_NUMBERS = count()


class Batches:
    """Makes batches with the given options. `address` is the service's; None makes them embedded."""

    def __init__(self, address: str | None) -> None:
        self.address = address

    def make(self, **options: Any) -> Any:
        if self.address is None:
            return coresched.Batch(workers=["w0", "w1"], **options)
        return coresched.connect(self.address, batch=f"batch {next(_NUMBERS)}", **options)

    def make_blocking(self, **options: Any) -> Any:
        if self.address is None:
            return sync.Batch(workers=["w0", "w1"], **options)
        return sync.connect(self.address, batch=f"batch {next(_NUMBERS)}", **options)
