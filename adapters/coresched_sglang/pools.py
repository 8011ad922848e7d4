"""A label capacity from the pools of the engine itself, for who asks for none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coresched_engine.label_capacity import CEILING, LabelCapacity


def derived_label_capacity(tree_cache: Any, hierarchical: bool) -> LabelCapacity:
    """How many trajectories can have anything in the prefix cache: what C_A must not be below.

    A trajectory that can be resumed holds at least one recurrent state, or without such states at least one
    page of KV of its own. A label set that is too small pushes out labels whose entries are alive, and RP
    decays to FCFS; one that is too large costs a prefix query a request at most. With a cache outside the
    device (``hierarchical``) no pool is the limit.
    """
    if hierarchical:
        return LabelCapacity(CEILING, "the default with a hierarchical cache")
    pool = getattr(tree_cache, "req_to_token_pool", None)
    slots = _size(getattr(pool, "mamba_pool", None))
    if slots:
        return LabelCapacity(min(slots, CEILING), f"the engine's {slots:,} state slots")
    tokens = _size(getattr(tree_cache, "token_to_kv_pool_allocator", None))
    page = getattr(tree_cache, "page_size", None) or 1
    if tokens:
        pages = max(1, tokens // page)
        return LabelCapacity(min(pages, CEILING), f"the engine's {pages:,} pages of KV, at most {CEILING:,}")
    return LabelCapacity(CEILING, "the default where the engine's pools are unknown")


def _size(pool: Any) -> int:
    size = getattr(pool, "size", None)
    return size if isinstance(size, int) and size > 0 else 0


LONGEST_OUTPUT_RESERVED = 4096
"""Output tokens beyond which SGLang reserves no more for a request."""


def kv_tokens_needed(request: Any) -> int:
    """KV tokens that a waiting request will take beyond its cached prefix, as SGLang reserves them."""
    prompt = len(request.origin_input_ids) + len(request.output_ids) - request.prefix_len
    output = max(request.sampling_params.max_new_tokens - len(request.output_ids), 0)
    return int(prompt + min(output, LONGEST_OUTPUT_RESERVED))


@dataclass(frozen=True)
class StatePool:
    """The recurrent-state slots of an engine.

    A request that runs takes ``slots_per_request``, SGLang's S: what it computes with and saves to, the state
    it was resumed from, and the one it leaves. A trajectory between two turns takes one.
    """

    allocator: Any
    slots_per_request: int

    @property
    def free(self) -> int:
        return int(self.allocator.available_size())

    def cold_starts(self, wanted: int, live: int, running: int, cached: int) -> int:
        """How many of ``wanted`` trajectories without a state may start.

        ``live`` trajectories with a state are idle or wait, of which ``cached`` start now, and ``running``
        requests run. All these keep what they have, and each that starts finds free slots.
        """
        free = self.free - (self.slots_per_request - 1) * cached
        taken = live + (self.slots_per_request - 1) * cached + self.slots_per_request * running
        left = int(min(free, self.allocator.size - taken))
        return max(0, min(wanted, left // self.slots_per_request))


def state_pool(tree_cache: Any) -> StatePool | None:
    """None for a model without recurrent states, and where these share their memory with the KV."""
    from sglang.srt.mem_cache.allocator.mamba import MambaSlotAllocator

    if not tree_cache.supports_mamba():
        return None
    pool = tree_cache.req_to_token_pool
    saved = getattr(pool, "mamba_ckpt_pool", None)  # where the tree's states have a pool of their own
    if saved is not None:
        return StatePool(saved.allocator, 2)
    if not isinstance(pool.mamba_allocator, MambaSlotAllocator):
        return None
    return StatePool(pool.mamba_allocator, 3 + pool.mamba_initial_tracking_slots)
