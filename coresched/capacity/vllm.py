"""vLLM's one pool of blocks, shared by KV entries and recurrent states (the arithmetic of vLLM 0.32.0).

With p the bytes of one token in one attention layer, s those of one layer's state, and A the larger of the
kernel's block and --block-size, at least 128 for MLA: a block holds B = A ceil(s / (A p)) tokens, so that the
page B p of one layer takes a state. Layers are dealt into groups of equal size g; a block is one page for
each layer of a group, and every group of a request draws its blocks from the same pool.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from coresched.capacity.fields import MAX_DIMENSION, require_option, shown
from coresched.errors import InputError

ONE_STATE_SCHEDULER = ("--scheduler-cls", "coresched_vllm.RoutingPrefix")
"""With it vLLM evicts superseded states first; alone it keeps two of a trajectory."""
ONE_STATE_VARIABLE = "CORESCHED_ONE_STATE_PER_TRAJECTORY"

DEFAULT_BLOCK_TOKENS = 16
MLA_HYBRID_BLOCK_TOKENS = 128
MAX_BYTES = 1 << 60


@dataclass(frozen=True)
class BlockLayout:
    """How a model is cut into blocks. All sizes are bytes per tensor-parallel rank."""

    block_tokens: int
    """B, tokens of one rank's attention block; 0 for a model without attention."""
    page_bytes: int
    """One block in one layer, B p."""
    state_page_bytes: int
    """What of it a state fills; 0 for a model without states."""
    group_layers: int
    """g, the layers that share a group's block table, with the padding layers."""
    attention_groups: int
    state_groups: int
    attention_padding_layers: int
    """Layers that exist only to fill the last attention group."""
    state_padding_layers: int
    bytes_per_block: int
    """On the most loaded pipeline stage: g page_bytes without pipeline parallelism."""
    dcp: int
    """Decode-context-parallel ranks: an attention block spans B dcp tokens, a state is on every rank."""
    checkpoint_blocks: int = 0
    """Blocks of each state group that a running request may hold for a state from within its prefill."""

    @property
    def block_span_tokens(self) -> int:
        """Tokens of a trajectory that one attention block of each rank covers together."""
        return self.block_tokens * self.dcp

    @property
    def page_padding(self) -> float:
        """The share by which a state's page is larger than the state."""
        return self.page_bytes / self.state_page_bytes - 1 if self.state_page_bytes else 0.0

    @property
    def kv_bytes(self) -> int:
        """Bytes of one KV token on a rank that holds it, with the padding layers of the attention groups."""
        if not self.block_tokens:
            return 0
        return self.attention_groups * self.bytes_per_block // self.block_tokens

    @property
    def state_bytes(self) -> int:
        """Bytes of one retained state: one block of every state group."""
        return self.state_groups * self.bytes_per_block

    @property
    def shortest_hit_tokens(self) -> int | None:
        """The shortest prefix that can be found again; shorter ones never hit. None where nothing is cached.

        Hits land on block boundaries. Beside states, one rank's block is the boundary even under DCP.
        """
        if not self.block_tokens:
            return None
        return self.block_tokens if self.state_groups else self.block_span_tokens

    def hit_tokens(self, prefix_tokens: int) -> int:
        """Tokens of a prefix that a later request with this prefix and at least one token more can reuse."""
        require_option("prefix_tokens", prefix_tokens, 0, MAX_BYTES)
        unit = self.shortest_hit_tokens
        return prefix_tokens // unit * unit if unit else 0


def _group_size(counts: Sequence[int]) -> int:
    """The smaller count, or the larger one where that pads less than half a group."""
    smallest, largest = min(counts), max(counts)
    return largest if largest < smallest * 1.5 else smallest


def _hybrid_block_tokens(kv_bytes: int, state_bytes: int, mla: bool, block: int, kernel: int) -> int:
    align = max(kernel, block, MLA_HYBRID_BLOCK_TOKENS if mla else 0)
    needed = align * -(-state_bytes // (align * kv_bytes))
    return max(block, -(-needed // kernel) * kernel)


def block_layout(
    *,
    attention_stages: Sequence[int],
    state_stages: Sequence[int],
    kv_layer_bytes: int,
    state_layer_bytes: int,
    mla: bool,
    block_tokens: int = DEFAULT_BLOCK_TOKENS,
    kernel_block_tokens: int = DEFAULT_BLOCK_TOKENS,
    dcp: int = 1,
    checkpoint_blocks: int = 0,
) -> BlockLayout:
    """The layout for the given layers.

    ``attention_stages`` and ``state_stages`` hold the pipeline stage of each layer in order, all 0 without
    pipeline parallelism; draft layers follow the attention layers. ``kv_layer_bytes`` is p and
    ``state_layer_bytes`` s. ``block_tokens`` is --block-size and ``kernel_block_tokens`` the attention
    backend's smallest block. ``checkpoint_blocks`` is what the state layers ask for beside their own, see
    `BlockLayout`. Raises InputError for a size out of range, or a model without any layer.
    """
    require_option("block_tokens", block_tokens, 1)
    require_option("kernel_block_tokens", kernel_block_tokens, 1)
    attention, state = len(attention_stages), len(state_stages)
    if not attention + state:
        raise InputError("a model of 0 layers has no cache; give at least one attention or state layer")
    if not attention:
        block, page = 0, state_layer_bytes
    else:
        block = block_tokens
        if state and state_layer_bytes:
            block = _hybrid_block_tokens(kv_layer_bytes, state_layer_bytes, mla, block, kernel_block_tokens)
        page = block * kv_layer_bytes
    size = _group_size([count for count in (attention, state) if count])
    attention_groups, state_groups = -(-attention // size), -(-state // size)
    groups = [attention_stages[first::attention_groups] for first in range(attention_groups)]
    groups += [state_stages[first::state_groups] for first in range(state_groups)]
    widest = max(max(Counter(group).values()) for group in groups)
    return BlockLayout(
        block_tokens=block,
        page_bytes=page,
        state_page_bytes=state_layer_bytes if state else 0,
        group_layers=size,
        attention_groups=attention_groups,
        state_groups=state_groups,
        attention_padding_layers=attention_groups * size - attention,
        state_padding_layers=state_groups * size - state,
        bytes_per_block=widest * page,
        dcp=dcp,
        checkpoint_blocks=checkpoint_blocks if state else 0,
    )


def usable_blocks(layout: BlockLayout, memory_bytes: int) -> int:
    """Blocks that requests can use: what fits into the memory of one rank, less the null block."""
    require_option("memory_bytes", memory_bytes, 0, MAX_BYTES)
    return max(0, memory_bytes // layout.bytes_per_block - 1)


def trajectory_blocks(
    layout: BlockLayout,
    tokens: int,
    *,
    running: bool,
    draft_tokens: int = 0,
    prefix_caching: bool = True,
    one_state_per_trajectory: bool = True,
) -> int:
    """Blocks one trajectory of ``tokens`` KV tokens holds.

    KV takes ceil(tokens / span) blocks of each attention group. States take one block of each state group
    when retained, or two without ``one_state_per_trajectory``, and 2 + checkpoint_blocks + draft_tokens when
    running; 1 + draft_tokens, and none retained, without prefix caching, which a model without attention
    never has.
    """
    require_option("tokens", tokens, 0, MAX_BYTES)
    require_option("draft_tokens", draft_tokens, 0)
    prefix_caching = prefix_caching and layout.block_tokens > 0
    if not running and not prefix_caching:
        return 0
    kv = -(-tokens // layout.block_span_tokens) * layout.attention_groups if layout.block_tokens else 0
    if not running:
        return kv + layout.state_groups * (1 if one_state_per_trajectory else 2)
    own = 2 + layout.checkpoint_blocks if prefix_caching else 1
    return kv + layout.state_groups * (own + draft_tokens)


@dataclass(frozen=True)
class SequenceLimits:
    """Bounds on --max-num-seqs."""

    start: int | None
    """Above it, the engine does not start with CUDA graphs for decoding; None without states."""
    run: int
    """More requests than this cannot run together, however short they are."""


def sequence_limits(layout: BlockLayout, memory_bytes: int, draft_tokens: int = 0) -> SequenceLimits:
    """How far --max-num-seqs can go with the pool that ``memory_bytes`` gives."""
    blocks = usable_blocks(layout, memory_bytes)
    start = memory_bytes // layout.bytes_per_block if layout.state_groups else None
    held = trajectory_blocks(layout, 1, running=True, draft_tokens=draft_tokens)
    return SequenceLimits(start, blocks // held)


def _share(running_share: float) -> Fraction:
    number = isinstance(running_share, (int, float)) and not isinstance(running_share, bool)
    if not number or not 0 <= running_share <= 1:
        raise InputError(f"running_share is {shown(running_share)}; it must be a number from 0 to 1")
    return Fraction(str(running_share))  # the number as written: 0.1 of 10 is 1, not just above 1


def blocks_needed(
    layout: BlockLayout, concurrency: int, tokens: int, *, running_share: float = 1.0, draft_tokens: int = 0
) -> int:
    """Blocks of ``concurrency`` trajectories of ``tokens`` each: ceil(share C) run, the rest wait."""
    require_option("concurrency", concurrency, 0, MAX_BYTES)
    share = _share(running_share)
    running = -(-concurrency * share.numerator // share.denominator)
    held = trajectory_blocks(layout, tokens, running=True, draft_tokens=draft_tokens)
    return running * held + (concurrency - running) * trajectory_blocks(layout, tokens, running=False)


def fitting_concurrency(
    layout: BlockLayout, memory_bytes: int, tokens: int, *, running_share: float = 1.0, draft_tokens: int = 0
) -> int:
    """The most trajectories of ``tokens`` each that the memory holds at once; 0 where not even one fits.

    Raises InputError where trajectories hold nothing, so that any number fits.
    """
    require_option("tokens", tokens, 1, MAX_BYTES)
    blocks, share = usable_blocks(layout, memory_bytes), _share(running_share)
    if not share and not trajectory_blocks(layout, tokens, running=False):
        raise InputError(f"running_share is {running_share}; idle trajectories hold no block here, give more")
    # A trajectory holds at least one block, if only the running ones do.
    low, high = 0, blocks if not share else blocks * share.denominator // share.numerator
    while low < high:
        middle = (low + high + 1) // 2
        needed = blocks_needed(layout, middle, tokens, running_share=running_share, draft_tokens=draft_tokens)
        low, high = (middle, high) if needed <= blocks else (low, middle - 1)
    return low


def memory_for(
    layout: BlockLayout, concurrency: int, tokens: int, *, running_share: float = 1.0, draft_tokens: int = 0
) -> int:
    """Bytes of one rank that hold so many trajectories and the null block: for --kv-cache-memory-bytes."""
    blocks = blocks_needed(
        layout, concurrency, tokens, running_share=running_share, draft_tokens=draft_tokens
    )
    return (blocks + 1) * layout.bytes_per_block


def engine_flags(
    layout: BlockLayout, *, running: int, memory_bytes: int, one_state_per_trajectory: bool = True
) -> tuple[str, ...]:
    """The flags with which vLLM runs ``running`` requests together on ``memory_bytes`` of pool a rank.

    Of a model with states ``one_state_per_trajectory`` adds the scheduler that keeps one. Raises InputError
    where the pool cannot run so many.
    """
    require_option("running", running, 1, MAX_DIMENSION)
    limit = sequence_limits(layout, memory_bytes).run
    if running > limit:
        raise InputError(f"running is {running:,}; {memory_bytes:,} bytes run {limit:,} at most")
    return (
        "--enable-prefix-caching",
        *("--max-num-seqs", str(running)),
        *("--kv-cache-memory-bytes", str(memory_bytes)),
        *(ONE_STATE_SCHEDULER if layout.state_groups and one_state_per_trajectory else ()),
    )
