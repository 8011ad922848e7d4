"""How many blocks a vLLM engine has by its own report, and the KV cache size that it would log for them."""

from dataclasses import replace

from coresched.capacity.observed.pools import ObservedPools
from coresched.capacity.vllm import BlockLayout, trajectory_blocks

CHECKPOINTS = (0, 1)
"""Blocks a running request may hold in each state group for a checkpoint, whatever the layout says: it is of
one release and of its usual kernels."""


def reported_blocks(observed: ObservedPools, layout: BlockLayout) -> tuple[int, int] | None:
    """The fewest and the most blocks that the report allows; None where it has neither blocks nor bytes."""
    if observed.blocks is not None:
        return observed.blocks, observed.blocks
    override = observed.count("num_gpu_blocks_override")
    if override is not None:
        return override, override
    if observed.pool_bytes is None:
        return None
    low, high = (observed.pool_bytes + sign * observed.rounding_bytes for sign in (-1, 1))
    return max(low, 0) // layout.bytes_per_block, high // layout.bytes_per_block


def cache_sizes(
    observed: ObservedPools, layout: BlockLayout, blocks: tuple[int, int], caching: bool
) -> list[tuple[int, int]]:
    """The fewest and most tokens that vLLM would log: int(blocks / n * longest), n the longest request's.

    Once for each number of checkpoint blocks it may hold, the layout's first; empty where the report does not
    say enough.
    """
    longest = observed.max_context
    if longest is None or observed.kv_tokens is None:
        return []
    expected = layout.checkpoint_blocks
    spans = []
    for checkpoints in sorted(CHECKPOINTS, key=lambda count: count != expected) if caching else (expected,):
        asked = replace(layout, checkpoint_blocks=checkpoints)
        request = trajectory_blocks(asked, longest, running=True, prefix_caching=caching)
        spans.append((int(blocks[0] / request * longest), int(blocks[1] / request * longest)))
    return spans
