"""SGLang 0.5.23's pool solve: from flags and memory to state slots, KV tokens and running requests."""

from dataclasses import dataclass
from typing import Final, Literal

from coresched.capacity.sglang_flags import (
    SglangFlags,
    checked_count,
    checked_positive,
    slots_per_request,
)
from coresched.errors import InputError

Limit = Literal["state slots", "kv tokens", "user", "clamp"]

LARGEST_MEMORY: Final = float(2**53)
"""Bytes; up to here every whole number is a double, so the engine's float arithmetic rounds nothing away."""

FEWEST_ESTIMATED: Final = 2048
MOST_ESTIMATED: Final = 4096
REQUESTS_PER_CONTEXT: Final = 512
"""The engine's estimate of running requests: tokens / context length * 512, within 2048 and 4096."""


@dataclass(frozen=True)
class SglangPools:
    """The pools of one attention-DP rank (the whole engine without DP attention).

    ``state_slots`` is K and leaves out ``padding_slots``; a dense model has neither, and
    ``slots_per_request`` 0. ``kv_tokens`` counts request tokens (per-rank rows times DCP size) in whole
    pages; the engine allocates one page more without pricing it. ``requested_running_requests`` is what the
    flags ask for, None when they leave it open; ``max_running_requests`` is what the engine runs, and
    ``limit`` what keeps it from running more. ``state_pool_bytes`` (padding slot included),
    ``speculative_bytes`` (draft states outside the slots), ``kv_pool_bytes`` and ``memory_left_bytes`` add up
    to the memory in whole bytes.
    """

    state_slots: int
    padding_slots: int
    slots_per_request: int
    kv_tokens: int
    max_running_requests: int
    requested_running_requests: int | None
    limit: Limit
    state_pool_bytes: int
    speculative_bytes: int
    kv_pool_bytes: int
    memory_left_bytes: int

    @property
    def refused_requests(self) -> int:
        """Requests asked for that the engine will not run at once; it says so in one log line only."""
        return max(0, (self.requested_running_requests or 0) - self.max_running_requests)


@dataclass(frozen=True)
class _StatePool:
    slots: int
    slot_bytes: int
    speculative_bytes: int

    @property
    def bytes(self) -> int:
        return (self.slots + 1) * self.slot_bytes if self.slot_bytes else 0


def solve_pools(flags: SglangFlags, memory_bytes: float, kv_bytes: int, state_bytes: int) -> SglangPools:
    """The pools SGLang 0.5.23 makes of M = ``memory_bytes``, what weights and reserves leave for both.

    With c = ``state_bytes`` (one state slot; 0 for a dense model), p the page size, r the ratio, D the draft
    tokens, S the slots per request and b = M r / (1 + r)::

        K      = int((b - c) // c)                        one slot is padding
                 int((b - c (1 + D)) // (c (1 + D / S)))  with speculation
                 max_mamba_cache_size                     when given
                 max_running_requests                     when given, radix cache off
        spec   = c (min(max_running_requests, K // S) + 1) D
        tokens = int(M - spec - (K + 1) c) // kv_bytes // p * p
        R      = min(max_running_requests, tokens // 2, K // S)

    Memory is that of one GPU; ``kv_bytes`` (one KV token, draft layers included) and ``state_bytes`` are per
    TP rank, and with pipeline parallelism those of the stage with most layers of the kind.
    ``max_mamba_cache_size`` and ``max_running_requests`` are divided by the attention DP size first; without
    the latter the engine takes tokens / context_length * 512, within 2048 and 4096. A dense model ignores
    the flags of the state pool.
    Raises InputError where the engine would refuse to start, and for numbers that make no sense.
    """
    memory = checked_positive(memory_bytes, "memory_bytes", LARGEST_MEMORY)
    checked_count(kv_bytes, "kv_bytes")
    checked_count(state_bytes, "state_bytes", 0)
    if state_bytes:
        _check_pages(flags)
    reserve = slots_per_request(flags) if state_bytes else 0
    states = _solve_states(flags, memory, state_bytes) if state_bytes else _StatePool(0, 0, 0)
    # Two subtractions in this order: the engine's roundings, should memory_bytes have a fraction.
    rest = memory - states.speculative_bytes - states.bytes
    available = int(rest) if rest > 0 else 0
    rows = _whole_pages(available // kv_bytes, flags)
    if rows < 1:
        raise InputError(
            f"memory_bytes is {memory_bytes!r}; {states.bytes + states.speculative_bytes} bytes of states "
            f"leave no page of {flags.page_size} KV tokens of {kv_bytes} bytes; raise it or lower the slots"
        )
    if flags.max_total_tokens is not None and flags.max_total_tokens < rows:
        rows = _whole_pages(flags.max_total_tokens, flags)
        if rows < 1:
            raise InputError(
                f"max_total_tokens is {flags.max_total_tokens}, less than a page of {flags.page_size}; "
                "raise it"
            )
    running, limit = _running_requests(flags, rows, states.slots // reserve if reserve else None)
    return SglangPools(
        state_slots=states.slots,
        padding_slots=1 if state_bytes else 0,
        slots_per_request=reserve,
        kv_tokens=rows * flags.dcp_size,
        max_running_requests=running,
        requested_running_requests=flags.requested_running_requests,
        limit=limit,
        state_pool_bytes=states.bytes,
        speculative_bytes=states.speculative_bytes,
        kv_pool_bytes=rows * kv_bytes,
        memory_left_bytes=available - rows * kv_bytes,
    )


def _check_pages(flags: SglangFlags) -> None:
    """The engine asserts this for hybrid models, whose states it saves between pages only."""
    buffered = not flags.disable_radix_cache and flags.mamba_radix_cache_strategy != "no_buffer"
    if buffered and flags.mamba_track_interval % flags.page_size:
        raise InputError(
            f"page_size is {flags.page_size}; the engine starts only where mamba_track_interval, "
            f"{flags.mamba_track_interval}, is a multiple of it; use a page_size that divides "
            f"{flags.mamba_track_interval}"
        )


def _whole_pages(tokens: int, flags: SglangFlags) -> int:
    return tokens // flags.page_size * flags.page_size


def _solve_states(flags: SglangFlags, memory: float, slot: int) -> _StatePool:
    """K and the speculative bytes. The engine computes in GiB, a power of two, so bytes round the same."""
    requested = flags.requested_running_requests
    reserve, drafts = slots_per_request(flags), flags.draft_tokens
    if flags.max_mamba_cache_size is not None:
        slots = flags.max_mamba_cache_size // flags.attn_dp_size
        source = (
            f"max_mamba_cache_size is {flags.max_mamba_cache_size} over attn_dp_size {flags.attn_dp_size}"
        )
    elif flags.disable_radix_cache and requested is not None:
        slots = requested
        source = f"max_running_requests is {requested} a rank"
    else:
        budget = memory * flags.mamba_full_memory_ratio / (1 + flags.mamba_full_memory_ratio)
        if drafts:
            slots = int((budget - slot * (1 + drafts)) // (slot * (1 + drafts / reserve)))
        else:
            slots = int((budget - slot) // slot)
        source = f"mamba_full_memory_ratio is {flags.mamba_full_memory_ratio!r} of {memory:.0f} bytes"
    if slots < reserve:
        raise InputError(
            f"{source}; that makes {max(slots, 0)} state slots of {slot} bytes besides the padding slot, "
            f"fewer than the {reserve} that one request needs, so the engine refuses to start; raise it"
        )
    speculative = 0
    if drafts and requested is not None:
        speculative = slot * (min(requested, slots // reserve) + 1) * drafts
    return _StatePool(slots, slot, speculative)


def _running_requests(flags: SglangFlags, rows: int, by_slots: int | None) -> tuple[int, Limit]:
    """R and what bounds it; of equal bounds, the one that the engine meets first."""
    running, limit = _requests_before_pools(flags, rows)
    if rows // 2 < running:
        running, limit = rows // 2, "kv tokens"
    if by_slots is not None and by_slots < running:
        running, limit = by_slots, "state slots"
    if running < 1:
        raise InputError(
            f"memory_bytes leaves room for {rows} KV token; the engine runs one request for every 2; raise it"
        )
    return running, limit


def _requests_before_pools(flags: SglangFlags, rows: int) -> tuple[int, Limit]:
    if flags.requested_running_requests is not None:
        return flags.requested_running_requests, "user"
    if flags.context_length is None:
        raise InputError(
            "context_length is None and so is max_running_requests, which the engine derives from it; "
            "give the model's context length in tokens or the running requests"
        )
    estimate = int(rows / flags.context_length * REQUESTS_PER_CONTEXT)
    return max(min(estimate, MOST_ESTIMATED), FEWEST_ESTIMATED), "clamp"
