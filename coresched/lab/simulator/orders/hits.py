"""Prefix hits of a whole waiting queue, and which cold prompts begin like one before them."""

from collections.abc import Mapping, Sequence
from typing import Final

from coresched.lab.simulator.orders.order import PrefixHit, Request

COLD_TOKENS: Final = 32
"""IN_BATCH_PREFIX_CACHING_CHECK_THRESHOLD: a prompt with no more of it cached is cold."""
ALIKE_TOKENS: Final = 32
"""IN_BATCH_PREFIX_CACHING_DEPRIORITIZE_THRESHOLD: prompts that share that much begin alike."""


def all_hits(waiting: Sequence[Request], prefix_hit: PrefixHit) -> dict[Request, int]:
    """Asks for every request, in the order of the queue."""
    return {request: prefix_hit(request) for request in waiting}


def followers(waiting: Sequence[Request], hits: Mapping[Request, int]) -> set[Request]:
    """The cold requests whose prompts begin like that of a cold one before them in the queue.

    SGLang puts these off, so that the first one caches what they share (in-batch prefix caching).
    """
    leaders: set[int] = set()
    found: set[Request] = set()
    for request in waiting:
        if hits[request] <= COLD_TOKENS and request.shared_tokens >= ALIKE_TOKENS:
            if request.group in leaders:
                found.add(request)
            leaders.add(request.group)
    return found
