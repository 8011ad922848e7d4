"""The other direction: the SGLang flags under which a wanted concurrency and KV demand fit."""

from dataclasses import dataclass, replace

from coresched.capacity.sglang_flags import SglangFlags, checked_count, checked_positive, slots_per_request
from coresched.capacity.sglang_pools import LARGEST_MEMORY, SglangPools, solve_pools
from coresched.errors import InputError


class DoesNotFit(InputError):
    """A wanted concurrency that the memory cannot hold; ``short_bytes`` more per GPU would do."""

    def __init__(self, message: str, short_bytes: int) -> None:
        super().__init__(message)
        self.short_bytes = short_bytes


@dataclass(frozen=True)
class SglangFit:
    """Flags to start the engine with, and the pools it makes of them (of one attention-DP rank)."""

    flags: SglangFlags
    pools: SglangPools


def flags_for(
    concurrency: int,
    kv_tokens: int,
    flags: SglangFlags,
    *,
    memory_bytes: float,
    kv_bytes: int,
    state_bytes: int,
    extra_slots: int = 0,
) -> SglangFit:
    """The flags with which ``concurrency`` requests run at once and ``kv_tokens`` tokens stay in the KV pool.

    Sets max_mamba_cache_size outright to S * concurrency + ``extra_slots`` (states kept besides those of
    running requests: idle trajectories, forks, chunk checkpoints) and max_running_requests; the rest of
    ``flags`` stays as it is. All three demands are of the whole engine and taken as shared evenly by its
    attention-DP ranks. ``memory_bytes``, ``kv_bytes`` and ``state_bytes`` are as for ``solve_pools``.

    With C, T and X the demands of one rank, p the page and D the draft tokens, that takes::

        (S C + X + 1) c  +  c (C + 1) D  +  ceil(max(T, 2 C) / p) p kv_bytes   bytes

    Raises DoesNotFit saying what is short and by how much, and InputError for numbers that make no sense.
    """
    checked_count(concurrency, "concurrency")
    checked_count(kv_tokens, "kv_tokens")
    checked_count(extra_slots, "extra_slots", 0)
    checked_count(kv_bytes, "kv_bytes")
    checked_count(state_bytes, "state_bytes", 0)
    memory = checked_positive(memory_bytes, "memory_bytes", LARGEST_MEMORY)
    ranks = flags.attn_dp_size
    requests = -(-concurrency // ranks)
    rows = -(-kv_tokens // (ranks * flags.dcp_size))
    slots = slots_per_request(flags) * requests + -(-extra_slots // ranks)

    pages = -(-max(rows, 2 * requests) // flags.page_size)
    tokens = pages * flags.page_size
    if flags.max_total_tokens is not None and flags.max_total_tokens < tokens:
        raise InputError(
            f"max_total_tokens is {flags.max_total_tokens}; the KV demand is {tokens} tokens a rank; "
            "raise it or leave it out"
        )
    states = state_bytes * (slots + 1 + (requests + 1) * flags.draft_tokens)
    short = states + tokens * kv_bytes - int(memory)
    if short > 0:
        where = f"concurrency is {concurrency}" + (
            f", {requests} on each of {ranks} ranks" if ranks > 1 else ""
        )
        if states > memory:
            found = f"its {slots} state slots alone take {states} of {memory:.0f} bytes, with the KV demand"
        else:
            room = int(memory - states) // kv_bytes
            beside = f" beside {states} bytes of {slots} state slots" if states else ""
            found = f"{room} of the {tokens} KV tokens it needs fit{beside},"
        raise DoesNotFit(
            f"{where}; {found} {short} bytes short; lower it or give the pools more memory", short
        )
    chosen = replace(
        flags,
        max_mamba_cache_size=slots * ranks if state_bytes else None,
        max_running_requests=requests * ranks,
    )
    return SglangFit(chosen, solve_pools(chosen, memory_bytes, kv_bytes, state_bytes))


def ratio_of(state_slots: int, flags: SglangFlags, memory_bytes: float, state_bytes: int) -> float:
    """r = b / (M - b), the mamba_full_memory_ratio whose budget b just holds K = ``state_slots``.

    b = c (K (1 + D/S) + 1 + D), the padding slot and draft states included. For reporting only: given as the
    flag, rounding may cost a slot. Raises InputError when the slots leave no memory for KV.
    """
    checked_count(state_slots, "state_slots")
    checked_count(state_bytes, "state_bytes")
    memory = checked_positive(memory_bytes, "memory_bytes", LARGEST_MEMORY)
    drafts = flags.draft_tokens
    budget = state_bytes * (state_slots * (1 + drafts / slots_per_request(flags)) + 1 + drafts)
    if budget >= memory:
        raise InputError(
            f"state_slots is {state_slots}; their {budget:.0f} bytes leave nothing of {memory:.0f} for KV; "
            "lower it"
        )
    return budget / (memory - budget)
