"""As much of vLLM's block pool as the adapter looks at: groups of states, in blocks of one token each."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

Path = tuple[int, ...]


@dataclass(eq=False)
class Block:
    block_id: int
    ref_cnt: int = 0
    block_hash: Any = None
    block_hash_num_tokens: int | None = None
    is_null: bool = False
    next_free_block: Block | None = None


class FreeQueue:
    def __init__(self, blocks: list[Block]) -> None:
        self.blocks = blocks

    @property
    def fake_free_list_head(self) -> Block:
        """The queue as the linked list that vLLM's is."""
        end = Block(-1)
        head = end
        for block in reversed(self.blocks):
            block.next_free_block = head
            head = block
        return Block(-1, next_free_block=head)

    def remove(self, block: Block) -> None:
        self.blocks.remove(block)

    def prepend_n(self, blocks: list[Block]) -> None:
        self.blocks[:0] = blocks


@dataclass(eq=False)
class Request:
    request_id: str
    label: str | None
    tokens: Path
    num_prompt_tokens: int
    num_computed_tokens: int = 0
    shared_prefix_boundary: int = 0
    num_preemptions: int = 0

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)

    @property
    def block_hashes(self) -> list[Path]:
        return [self.tokens[: place + 1] for place in range(len(self.tokens))]


class Table:
    """The blocks of each request in one group."""

    block_size = 1
    kv_cache_spec = SimpleNamespace()

    def __init__(self, block_pool: StatePool) -> None:
        self.block_pool = block_pool
        self.mamba_cache_mode = "align"
        self.req_to_blocks: dict[str, list[Block]] = {}
        self.num_cached_block: dict[str, int] = {}


class StatePool:
    """A request resumes at the longest cached state of its prompt, and makes one before its last token.

    The hash of a state is its path of tokens; with the group, ``(group, path)``.
    """

    hash_block_size = 1

    def __init__(self, size: int, groups: int = 1) -> None:
        self.tables = [Table(self) for _ in range(groups)]
        self.null = Block(0, is_null=True)
        self.blocks = [self.null, *(Block(number + 1) for number in range(size))]
        self.num_gpu_blocks = len(self.blocks)
        self.free_block_queue = FreeQueue(self.blocks[1:])
        self.running: list[Request] = []

    @property
    def kv_cache_manager(self) -> Any:
        coordinator = SimpleNamespace(single_type_managers=self.tables)
        return SimpleNamespace(coordinator=coordinator, block_pool=self)

    def cached(self, path: Path) -> list[Block] | None:
        """The block of each group, if all have one."""
        found = []
        for group in range(len(self.tables)):
            block = next((block for block in self.blocks if block.block_hash == (group, path)), None)
            if block is None:
                return None
            found.append(block)
        return found

    def start(self, request: Request) -> tuple[list[Block], list[Block]]:
        """The blocks that it is resumed from, and those that it makes; there is room or it makes none."""
        path = request.tokens[: request.num_prompt_tokens - 1]
        ends = (end for end in range(len(path), 0, -1) if self.cached(path[:end]))
        end = next(ends, 0)
        hits = self.cached(path[:end]) or [] if end else []
        for block in hits:
            if not block.ref_cnt:
                self.free_block_queue.remove(block)
            block.ref_cnt += 1
        room = len(self.free_block_queue.blocks) >= len(self.tables)
        made = self.make(path) if path and end < len(path) and room else []
        request.num_computed_tokens = len(request.tokens)
        for group, table in enumerate(self.tables):
            blocks = [self.null] * len(path)
            if hits:
                blocks[end - 1] = hits[group]
            if made:
                blocks[-1] = made[group]
            table.req_to_blocks[request.request_id] = blocks
            table.num_cached_block[request.request_id] = len(path)
        self.running.append(request)
        return hits, made

    def make(self, path: Path) -> list[Block]:
        made = self.get_new_blocks(len(self.tables))
        for group, block in enumerate(made):
            block.block_hash, block.block_hash_num_tokens = (group, path), len(path)
        return made

    def reply(self, request: Request, tokens: Path) -> list[Block]:
        """Cache what was generated: the state of the last token."""
        request.tokens += tokens
        if not tokens or len(self.free_block_queue.blocks) < len(self.tables):
            return []
        made = self.make(request.tokens)
        for block, table in zip(made, self.tables, strict=True):
            blocks = table.req_to_blocks[request.request_id]
            blocks += [self.null] * (len(request.tokens) - len(blocks))
            blocks[-1] = block
            table.num_cached_block[request.request_id] = len(request.tokens)
        return made

    def release(self, request: Request, *, but_last: bool) -> None:
        """Give back the blocks that the request no longer needs: all but its last ones, or all."""
        for table in self.tables:
            blocks = table.req_to_blocks[request.request_id]
            for place in range(len(blocks) - but_last):
                block = blocks[place]
                if not block.is_null:
                    block.ref_cnt -= 1
                    if not block.ref_cnt:
                        self.free_block_queue.blocks.append(block)
                    blocks[place] = self.null

    def finish(self, request: Request) -> None:
        self.release(request, but_last=False)
        for table in self.tables:
            del table.req_to_blocks[request.request_id], table.num_cached_block[request.request_id]
        self.running.remove(request)

    def get_new_blocks(self, num_blocks: int) -> list[Block]:
        blocks = [self.free_block_queue.blocks.pop(0) for _ in range(num_blocks)]
        for block in blocks:
            block.ref_cnt, block.block_hash, block.block_hash_num_tokens = 1, None, None
        return blocks

    def get_cached_block(self, block_hash: Path, kv_cache_group_ids: list[int]) -> list[Block] | None:
        keys = [(group, block_hash) for group in kv_cache_group_ids]
        found = [next((block for block in self.blocks if block.block_hash == key), None) for key in keys]
        return None if None in found else [block for block in found if block is not None]

    def evict_blocks(self, block_ids: set[int]) -> None:
        for number in block_ids:
            self.blocks[number].block_hash = self.blocks[number].block_hash_num_tokens = None

    def get_num_free_blocks(self) -> int:
        return len(self.free_block_queue.blocks)

    def touch(self, blocks: list[Block]) -> None:
        for block in blocks:
            if not block.ref_cnt:
                self.free_block_queue.remove(block)
            block.ref_cnt += 1

    def free_blocks(self, ordered_blocks: list[Block]) -> None:
        for block in ordered_blocks:
            block.ref_cnt -= 1
            if not block.ref_cnt:
                self.free_block_queue.blocks.append(block)

    def empty(self) -> None:
        for block in self.blocks:
            if not block.ref_cnt:
                block.block_hash = block.block_hash_num_tokens = None
