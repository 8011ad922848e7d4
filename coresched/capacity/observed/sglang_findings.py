"""What is off or notable about SGLang's two pools."""

from dataclasses import replace
from typing import cast

from coresched.capacity.observed.findings import Finding, per_rank, smaller_states
from coresched.capacity.observed.pools import ObservedPools
from coresched.capacity.observed.priced import Priced
from coresched.capacity.observed.sglang_report import SKIP_DECODE_LOCK
from coresched.capacity.sglang import SglangFlags, slots_per_request, solve_pools
from coresched.capacity.sglang_flags import STRATEGIES, TRACK_INTERVAL, Strategy
from coresched.capacity.sglang_pools import FEWEST_ESTIMATED
from coresched.errors import InputError

DEFAULT_RATIO = 0.9
STARVED = 0.1
"""The share of KV tokens more, from slots nobody runs in, from which the default ratio is called wrong."""

NOT_COVERED = (
    "enable_unified_memory",
    "enable_int8_mamba_checkpoint",
    "enable_linear_replayssm",
    "enable_linear_replayssm_spec",
)


def sglang_findings(observed: ObservedPools, priced: Priced | None, concurrency: int | None) -> list[Finding]:
    """The findings, in no order."""
    found: list[Finding] = []
    if observed.switch("disable_radix_cache"):
        found.append(
            Finding(
                "off", "prefix cache", "is off (--disable-radix-cache): every turn prefills its whole context"
            )
        )
    flags = _flags(observed, priced)
    if isinstance(flags, InputError):
        return [*found, Finding("note", "pools", f"are not compared: {flags}")]
    slots = slots_per_request(flags) if observed.state_slots is not None else 0
    found += _running(observed, flags, slots, concurrency)
    if observed.state_slots is not None and slots and observed.state_slots % slots:
        whole, left = divmod(observed.state_slots, slots)
        found.append(
            Finding(
                "note",
                "state slots",
                f"{observed.state_slots:,} are no multiple of S = {slots}: {whole:,} running requests "
                f"reserve {whole * slots:,}, leaving {left} for idle trajectories",
            )
        )
    found += _ratio(observed, flags, slots, priced, concurrency)
    if priced is not None:
        found += smaller_states(priced)
        found += _arithmetic(observed, flags, priced)
    return found


def _flags(observed: ObservedPools, priced: Priced | None) -> SglangFlags | InputError:
    """The flags as the arithmetic takes them, or why it cannot."""
    for name in NOT_COVERED:
        if observed.switch(name):
            return InputError(f"--{name.replace('_', '-')} is not covered by the arithmetic")
    strategy = observed.text("mamba_radix_cache_strategy")
    hybrid = observed.state_slots is not None and not observed.switch("disable_radix_cache")
    if hybrid and strategy not in STRATEGIES:
        return InputError(f"mamba_radix_cache_strategy is {strategy}, not what it resolved to")
    drafts = observed.count("speculative_num_draft_tokens")
    context = observed.max_context or (priced.footprint.max_context if priced else None)
    try:
        return SglangFlags(
            context_length=context,
            page_size=observed.page_size or 1,
            mamba_full_memory_ratio=observed.number("mamba_full_memory_ratio") or DEFAULT_RATIO,
            max_mamba_cache_size=observed.count("max_mamba_cache_size"),
            max_running_requests=observed.count("max_running_requests"),
            max_total_tokens=observed.count("max_total_tokens"),
            # The checks on a strategy are the engine's own for hybrid models only.
            mamba_radix_cache_strategy=cast(Strategy, strategy if hybrid else "extra_buffer"),
            mamba_track_interval=observed.count("mamba_track_interval") or TRACK_INTERVAL,
            disable_overlap_schedule=observed.switch("disable_overlap_schedule"),
            disable_radix_cache=observed.switch("disable_radix_cache"),
            skip_decode_lock=observed.switch(SKIP_DECODE_LOCK),
            speculative_num_draft_tokens=drafts if observed.text("speculative_algorithm") else None,
            attn_dp_size=observed.count("attn_dp_size") or 1,
            pp_size=observed.count("pp_size") or 1,
            dcp_size=observed.count("dcp_size") or 1,
        )
    except InputError as problem:
        return problem


def _cap(observed: ObservedPools, flags: SglangFlags, slots: int) -> str:
    """What bounds the running requests, and how to raise it."""
    running = observed.max_running_requests or 0
    if observed.state_slots is not None and slots and observed.state_slots // slots <= running:
        return (
            f"{observed.state_slots:,} state slots of S = {slots} a request; raise --max-mamba-cache-size or "
            "--mamba-full-memory-ratio"
        )
    if observed.kv_tokens is not None and observed.kv_tokens // 2 <= running:
        return f"{observed.kv_tokens:,} KV tokens, 2 a request; give the pools more memory"
    if flags.requested_running_requests is not None:
        return "--max-running-requests; raise it"
    return "the engine's own estimate from the context length; set --max-running-requests"


def _running(
    observed: ObservedPools, flags: SglangFlags, slots: int, concurrency: int | None
) -> list[Finding]:
    running = observed.max_running_requests
    if running is None:
        return []
    at_once = f"{running:,} requests run at once" + (
        f" on each of {observed.ranks} ranks" if observed.ranks > 1 else ""
    )
    if concurrency is not None and running < per_rank(observed, concurrency):
        share = f", {per_rank(observed, concurrency):,} on a rank" if observed.ranks > 1 else ""
        return [
            Finding(
                "off",
                "concurrency",
                f"{at_once}, {concurrency:,} are asked for{share}: capped by {_cap(observed, flags, slots)}",
            )
        ]
    requested = flags.requested_running_requests
    if requested is not None and running < requested:
        return [
            Finding(
                "off",
                "concurrency",
                f"{at_once}, --max-running-requests asks for {requested:,}: capped by "
                f"{_cap(observed, flags, slots)}",
            )
        ]
    asked = "" if concurrency is None else f", {concurrency:,} are asked for"
    return [Finding("ok", "concurrency", f"{at_once}{asked}")]


def _ratio(
    observed: ObservedPools, flags: SglangFlags, slots: int, priced: Priced | None, concurrency: int | None
) -> list[Finding]:
    """The default ratio, where it decided the pools."""
    if observed.state_slots is None or flags.max_mamba_cache_size is not None or flags.disable_radix_cache:
        return []
    if flags.mamba_full_memory_ratio != DEFAULT_RATIO:
        return []
    part = DEFAULT_RATIO / (1 + DEFAULT_RATIO)
    share = f"the default ratio {DEFAULT_RATIO:g} gives {part:.0%} of the pools to states"
    tokens = observed.kv_tokens or 0
    if concurrency is None or priced is None or not priced.footprint.kv_bytes or not slots or not tokens:
        each = tokens // max(observed.max_running_requests or 1, 1)
        return [
            Finding(
                "note",
                "ratio",
                f"{share}, which leaves {each:,} KV tokens to each request that can run; "
                "plan it for your contexts",
            )
        ]
    needed = slots * per_rank(observed, concurrency)
    spare = observed.state_slots - needed
    more = spare * priced.footprint.state_bytes // priced.footprint.kv_bytes
    if more < STARVED * tokens:
        return []
    return [
        Finding(
            "off",
            "ratio",
            f"{share}: {spare:,} of {observed.state_slots:,} slots are beyond what {concurrency:,} requests "
            f"reserve, and would be {more:,} KV tokens on top of {tokens:,}; set "
            f"--max-mamba-cache-size {needed * flags.attn_dp_size}",
        )
    ]


def _arithmetic(observed: ObservedPools, flags: SglangFlags, priced: Priced) -> list[Finding]:
    """The pools against what the flags and the footprint give."""
    cost = priced.footprint
    if flags.draft_tokens or observed.text("speculative_algorithm"):
        return [Finding("note", "pools", "are not compared: the draft's layers are not reported")]
    if flags.pp_size > 1:
        return [Finding("note", "pools", "are not compared: they differ between pipeline stages")]
    if bool(cost.state_layers) != (observed.state_slots is not None):
        has = "has no state slots" if observed.state_slots is None else "has state slots"
        return [
            Finding(
                "off", "pools", f"the engine {has}, unlike {cost.model}: pass the model it runs as --model"
            )
        ]
    off = [*_bytes(observed, priced), *_solved(observed, flags, priced)]
    if off:
        return off
    tokens, slots = observed.kv_tokens or 0, observed.state_slots
    states = "" if slots is None else f" and {slots:,} state slots of {cost.state_bytes:,} bytes"
    return [
        Finding("ok", "pools", f"{tokens:,} KV tokens of {cost.kv_bytes:,} bytes{states}, as the flags give")
    ]


def _bytes(observed: ObservedPools, priced: Priced) -> list[Finding]:
    """The reported sizes of the pools. The engine allocates a page and a slot more than it counts."""
    cost, off = priced.footprint, []
    hint = "it runs another model, tp or dtype than assumed; pass --model or --tp"
    page = observed.page_size or 1
    if observed.kv_pool_bytes is not None and observed.kv_tokens:
        expected = (observed.kv_tokens + page) * cost.kv_bytes
        if abs(observed.kv_pool_bytes - expected) > observed.rounding_bytes + page * cost.kv_bytes:
            each = observed.kv_pool_bytes / (observed.kv_tokens + page)
            off.append(
                Finding(
                    "off",
                    "pools",
                    f"a KV token takes {each:,.0f} bytes, {cost.model} has {cost.kv_bytes:,}: {hint}",
                )
            )
    if observed.state_pool_bytes is not None and observed.state_slots is not None:
        expected = (observed.state_slots + 1) * cost.state_bytes
        if abs(observed.state_pool_bytes - expected) > observed.rounding_bytes:
            each = observed.state_pool_bytes / (observed.state_slots + 1)
            off.append(
                Finding(
                    "off",
                    "pools",
                    f"a state slot takes {each:,.0f} bytes, {cost.model} has {cost.state_bytes:,}: {hint}",
                )
            )
    return off


def _solved(observed: ObservedPools, flags: SglangFlags, priced: Priced) -> list[Finding]:
    """K and R of the same flags. The memory is between what the pools fill and less than a page more."""
    cost, rows = priced.footprint, observed.kv_tokens or 0
    slots = observed.state_slots or 0
    least = rows * cost.kv_bytes + ((slots + 1) * cost.state_bytes if slots else 0)
    most = least + flags.page_size * cost.kv_bytes - 1
    known = replace(flags, context_length=flags.context_length or 1)
    clipped = (
        flags.max_total_tokens is not None
        and rows >= flags.max_total_tokens // flags.page_size * flags.page_size
    )
    try:
        if slots and not clipped:
            low, high = (
                solve_pools(known, m, cost.kv_bytes, cost.state_bytes).state_slots for m in (least, most)
            )
            if not low <= slots <= high:
                return [
                    Finding(
                        "off",
                        "pools",
                        f"{slots:,} state slots beside {rows:,} KV tokens, where the flags give "
                        f"{_span(low, high)} in the same memory: another model, tp or dtype than assumed",
                    )
                ]
        fixed = replace(
            known, max_mamba_cache_size=slots * flags.attn_dp_size if slots else None, max_total_tokens=rows
        )
        running = solve_pools(fixed, most, cost.kv_bytes, cost.state_bytes).max_running_requests
    except InputError as problem:
        return [Finding("off", "pools", f"the flags do not give the engine's pools: {problem}")]
    if running == observed.max_running_requests:
        return []
    guessed = flags.requested_running_requests is None and observed.max_context is None
    if guessed and min(running, observed.max_running_requests or 0) >= FEWEST_ESTIMATED:
        return []  # the engine's estimate from a context length that it does not report
    return [
        Finding(
            "off",
            "pools",
            f"{observed.max_running_requests or 0:,} requests run at once, where flags and pools give "
            f"{running:,}",
        )
    ]


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
