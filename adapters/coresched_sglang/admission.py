"""Which waiting requests a pass of SGLang's scheduler truly admitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def admitted_requests(plan: Any, waiting: Sequence[Any]) -> list[Any]:
    """Those of the batch that ``plan`` runs next which were in the waiting queue, in admission order.

    The batch also holds the request whose prefill goes on in chunks, and running requests where prefill and
    decode are mixed; these were admitted before. ``plan`` is a plan with ``batch_to_run``, or that batch
    itself before SGLang 0.5.16; a batch of None admits nothing.
    """
    batch = getattr(plan, "batch_to_run", plan)
    if batch is None:
        return []
    first = set(batch.reqs).intersection(waiting)
    return [request for request in batch.reqs if request in first]
