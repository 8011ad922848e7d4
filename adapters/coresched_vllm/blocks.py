"""What a policy reads of vLLM's block pool: which blocks a request holds, and which of them are cached."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Group:
    """The layers of one block table: one of vLLM's managers, of which ``number`` is the place."""

    def __init__(self, manager: Any, number: int) -> None:
        self._manager = manager
        self.number = number
        self.block_size: int = manager.block_size
        """Tokens of one block."""
        spec = manager.kv_cache_spec
        mode = getattr(manager, "mamba_cache_mode", None)
        self.recurrent = mode is not None
        self.aligned_states = mode == "align"
        """Whether it holds a recurrent state where a request computes, and others only to be resumed from."""
        window = getattr(spec, "sliding_window", None) or getattr(spec, "attention_chunk_size", None)
        self.window_blocks = -(-window // self.block_size) + 1 if window else None
        """Blocks beyond which earlier ones are given back; None where all of a trajectory's are kept."""
        self.running_states = 0
        """Blocks of recurrent states that a request holds while it runs, with what it speculates with."""
        if self.recurrent:
            drafts = getattr(spec, "num_speculative_blocks", 0)
            checkpoints = getattr(spec, "num_prefill_checkpoint_blocks", 0)
            self.running_states = 2 + drafts + checkpoints

    def blocks_of(self, request_id: str) -> list[Any]:
        """The request's blocks in order, vLLM's null block where it holds none. Not a copy."""
        blocks: list[Any] = self._manager.req_to_blocks.get(request_id, ())
        return blocks

    def cached_blocks(self, request_id: str) -> int:
        """How many of its first blocks vLLM has looked at for the cache."""
        return int(self._manager.num_cached_block.get(request_id, 0))

    def cached_from(self, request_id: str, first: int) -> Iterator[tuple[Any, int]]:
        """Cached blocks from place ``first`` on, each with the tokens at its end."""
        blocks = self.blocks_of(request_id)
        for place in range(first, len(blocks)):
            block = blocks[place]
            if block.block_hash is not None and not block.is_null:
                yield block, block.block_hash_num_tokens or (place + 1) * self.block_size


class Groups:
    """Those of one KVCacheManager whose blocks are of its pool and go to its prefix cache."""

    def __init__(self, kv_cache_manager: Any) -> None:
        managers = kv_cache_manager.coordinator.single_type_managers
        self.pool = kv_cache_manager.block_pool
        self.all = [
            Group(manager, number)
            for number, manager in enumerate(managers)
            if manager.block_pool is self.pool and getattr(manager.kv_cache_spec, "prefix_cacheable", True)
        ]
        self.recurrent = [group for group in self.all if group.recurrent]
        self.attention = [group for group in self.all if not group.recurrent]

    @property
    def keeps_aligned_states(self) -> bool:
        """Whether its states are such as vLLM keeps beside each other until they are evicted."""
        return bool(self.recurrent) and all(group.aligned_states for group in self.recurrent)

    @property
    def usable(self) -> int:
        """Blocks that requests can use."""
        return int(self.pool.num_gpu_blocks) - 1
