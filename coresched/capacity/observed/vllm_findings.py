"""What is off or notable about vLLM's one pool of blocks."""

from coresched.capacity.observed.findings import Finding, per_rank, smaller_states
from coresched.capacity.observed.pools import ObservedPools
from coresched.capacity.observed.priced import Priced
from coresched.capacity.observed.vllm_size import cache_sizes, reported_blocks
from coresched.capacity.vllm import DEFAULT_BLOCK_TOKENS, BlockLayout, trajectory_blocks


def vllm_findings(observed: ObservedPools, priced: Priced | None, concurrency: int | None) -> list[Finding]:
    """The findings, in no order."""
    found: list[Finding] = []
    caching = observed.flags.get("enable_prefix_caching") is not False
    if not caching:
        found.append(
            Finding(
                "off",
                "prefix cache",
                "is off: every turn prefills its whole context; --enable-prefix-caching",
            )
        )
    layout = priced.footprint.layout if priced is not None else None
    speculative = observed.flags.get("speculative_config") is not None
    fits = None if layout is None or speculative else _fits(observed, layout, caching)
    found += _running(observed, fits, concurrency)
    found += _prefix(observed, layout, caching)
    if priced is not None and layout is not None:
        found += smaller_states(priced)
        if speculative:
            found.append(Finding("note", "pools", "are not compared: the draft's layers are not reported"))
        else:
            found += _arithmetic(observed, layout, priced, caching)
    return found


def _fits(observed: ObservedPools, layout: BlockLayout, caching: bool) -> int | None:
    """How many requests the blocks can run together, however short they are."""
    blocks = reported_blocks(observed, layout)
    if blocks is None:
        return None
    # The null block is nobody's.
    return max(0, blocks[1] - 1) // trajectory_blocks(layout, 1, running=True, prefix_caching=caching)


def _running(observed: ObservedPools, fits: int | None, concurrency: int | None) -> list[Finding]:
    limit = observed.max_running_requests
    each = f" on each of {observed.ranks} engines" if observed.ranks > 1 else ""
    if limit is not None and fits is not None and limit > fits:
        return [
            Finding(
                "off",
                "concurrency",
                f"--max-num-seqs is {limit:,}, the blocks run {fits:,} requests at most{each}: lower it, "
                "or give the pool more memory",
            )
        ]
    if concurrency is not None:
        needed = per_rank(observed, concurrency)
        for bound, name in (
            (limit, "--max-num-seqs; raise it"),
            (fits, "the blocks; give the pool more memory"),
        ):
            if bound is not None and bound < needed:
                return [
                    Finding(
                        "off",
                        "concurrency",
                        f"{bound:,} requests run at once{each}, {concurrency:,} are asked for: capped by "
                        f"{name}",
                    )
                ]
    if limit is None:
        where = "in the log" if observed.version is None or "max_seq_len" in observed.flags else "in /metrics"
        room = "" if fits is None else f"; the blocks run {fits:,} short requests at most{each}"
        return [Finding("note", "concurrency", f"--max-num-seqs is not {where}, so it is not compared{room}")]
    asked = "" if concurrency is None else f", {concurrency:,} are asked for"
    return [Finding("ok", "concurrency", f"{limit:,} requests run at once{each}{asked}")]


def _prefix(observed: ObservedPools, layout: BlockLayout | None, caching: bool) -> list[Finding]:
    unit = observed.count("prefix_match_unit") or observed.page_size
    if not caching or unit is None or unit <= DEFAULT_BLOCK_TOKENS:
        return []
    if layout is not None and layout.dcp > 1 and not layout.state_groups:
        unit *= layout.dcp
    return [
        Finding(
            "note",
            "prefix",
            f"shorter than a block of {unit:,} tokens never hits, and hits end on its multiples",
        )
    ]


def _arithmetic(observed: ObservedPools, layout: BlockLayout, priced: Priced, caching: bool) -> list[Finding]:
    """Block size, blocks and tokens against the layout."""
    cost = priced.footprint
    if observed.page_size is not None and observed.page_size != layout.block_tokens:
        return [
            Finding(
                "off",
                "pools",
                f"a block has {observed.page_size:,} tokens, {cost.model} gives {layout.block_tokens:,}: it "
                "runs another model, tp or dtype than assumed; pass --model or --tp",
            )
        ]
    blocks = reported_blocks(observed, layout)
    if blocks is None:
        return [Finding("note", "pools", "are not compared: neither blocks nor their memory are reported")]
    memory, override = observed.pool_bytes, observed.flags.get("num_gpu_blocks_override")
    exact = observed.blocks is not None and observed.rounding_bytes == 0 and override is None
    if exact and memory is not None and memory // layout.bytes_per_block != observed.blocks:
        return [
            Finding(
                "off",
                "pools",
                f"{observed.blocks:,} blocks of {memory:,} bytes, where ones of "
                f"{layout.bytes_per_block:,} bytes give {memory // layout.bytes_per_block:,}: "
                "another model, tp or dtype than assumed",
            )
        ]
    spans = cache_sizes(observed, layout, blocks, caching)
    if spans and not any(low <= (observed.kv_tokens or 0) <= high for low, high in spans):
        low, high = spans[0]
        expected = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        return [
            Finding(
                "off",
                "pools",
                f"the KV cache size is {observed.kv_tokens or 0:,} tokens, where the blocks give {expected}: "
                "another model, tp or dtype than assumed",
            )
        ]
    least, most = blocks
    count = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    kernel = (
        f", with a kernel block of {priced.kernel_block}"
        if priced.kernel_block > DEFAULT_BLOCK_TOKENS
        else ""
    )
    size = f"of {layout.block_tokens:,} tokens, {layout.bytes_per_block:,} bytes"
    return [Finding("ok", "pools", f"{count} blocks {size}, as the flags give{kernel}")]
