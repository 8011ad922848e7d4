"""A label capacity from the pools of the engine itself, for who asks for none."""

from __future__ import annotations

from typing import Any

from coresched_sglang.configuration import LabelCapacity

CEILING = 65_536
"""Labels beyond which a larger set cannot matter and its own memory, about 200 bytes a label, begins to."""


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
