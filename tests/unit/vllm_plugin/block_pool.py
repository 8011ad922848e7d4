"""As much of vLLM's block pool as the adapter looks at: one group of states in blocks of one token each."""

from __future__ import annotations

from dataclasses import dataclass, field
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


class FreeQueue:
    def __init__(self, blocks: list[Block]) -> None:
        self.blocks = blocks

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

    @property
    def block_hashes(self) -> list[Path]:
        return [self.tokens[: place + 1] for place in range(len(self.tokens))]


@dataclass
class StatePool:
    """A request resumes at the longest cached state of its prompt, and makes one before its last token.

    The hash of a state is its path of tokens; with the group, ``("state", path)``.
    """

    size: int
    block_size: int = 1
    hash_block_size: int = 1
    mamba_cache_mode: str = "align"
    kv_cache_spec: Any = field(default_factory=SimpleNamespace)
    num_gpu_blocks: int = 0

    def __post_init__(self) -> None:
        self.null = Block(0, is_null=True)
        self.blocks = [self.null, *(Block(number + 1) for number in range(self.size))]
        self.num_gpu_blocks = len(self.blocks)
        self.free_block_queue = FreeQueue(self.blocks[1:])
        self.req_to_blocks: dict[str, list[Block]] = {}
        self.num_cached_block: dict[str, int] = {}
        self.running: list[Request] = []

    @property
    def kv_cache_manager(self) -> Any:
        coordinator = SimpleNamespace(single_type_managers=(self,))
        return SimpleNamespace(coordinator=coordinator, block_pool=self)

    def start(self, request: Request) -> tuple[Block | None, Block | None]:
        """The block that it is resumed from, and the one that it makes."""
        queue, path = self.free_block_queue, request.tokens[: request.num_prompt_tokens - 1]
        hit: Block | None = None
        for end in range(len(path), 0, -1):
            cached = [block for block in self.blocks if block.block_hash == ("state", path[:end])]
            if cached:
                hit = cached[0]
                break
        blocks = [self.null] * len(path)
        if hit is not None:
            if not hit.ref_cnt:
                queue.remove(hit)
            hit.ref_cnt += 1
            assert hit.block_hash_num_tokens is not None
            blocks[hit.block_hash_num_tokens - 1] = hit
        made = None
        if path and blocks[-1] is self.null and queue.blocks:
            made = blocks[-1] = self.make(path)
        request.num_computed_tokens = len(request.tokens)
        self.req_to_blocks[request.request_id] = blocks
        self.num_cached_block[request.request_id] = len(path)
        self.running.append(request)
        return hit, made

    def make(self, path: Path) -> Block:
        block = self.free_block_queue.blocks.pop(0)
        block.ref_cnt = 1
        block.block_hash, block.block_hash_num_tokens = ("state", path), len(path)
        return block

    def reply(self, request: Request, tokens: Path) -> Block | None:
        """Cache what was generated: the state of the last token."""
        request.tokens += tokens
        if not tokens or not self.free_block_queue.blocks:
            return None
        made = self.make(request.tokens)
        blocks = self.req_to_blocks[request.request_id]
        blocks += [self.null] * (len(request.tokens) - len(blocks))
        blocks[-1] = made
        self.num_cached_block[request.request_id] = len(request.tokens)
        return made

    def release(self, request: Request, *, but_last: bool) -> None:
        """Give back the blocks that the request no longer needs: all but its last one, or all."""
        blocks = self.req_to_blocks[request.request_id]
        for place in range(len(blocks) - but_last):
            block = blocks[place]
            if not block.is_null:
                block.ref_cnt -= 1
                if not block.ref_cnt:
                    self.free_block_queue.blocks.append(block)
                blocks[place] = self.null

    def finish(self, request: Request) -> None:
        self.release(request, but_last=False)
        del self.req_to_blocks[request.request_id], self.num_cached_block[request.request_id]
        self.running.remove(request)

    def empty(self) -> None:
        for block in self.blocks:
            if not block.ref_cnt:
                block.block_hash = block.block_hash_num_tokens = None
