"""Random pool configurations, many of them on the edge between two results."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from coresched.capacity.sglang import Strategy, slots_per_request
from coresched.capacity.sglang_flags import STRATEGIES, SglangFlags

GIB = 1 << 30
KV_BYTES = (1_024, 3_072, 6_912, 8_064, 9_216, 12_288, 16_384, 131_072, 372_736)
STATE_BYTES = (45_056, 2_525_184, 4_884_480, 9_820_160, 18_995_200, 48_015_360, 192_072_704)
RATIOS = (0.05, 0.09, 0.1, 0.3, 0.45, 0.9, 1.0, 1.13, 2.26, 3.0)


@dataclass(frozen=True)
class Case:
    """One configuration: flags as keywords, some of them refused, and bytes as for ``solve_pools``."""

    flags: dict[str, Any]
    memory_bytes: float
    kv_bytes: int
    state_bytes: int


def random_case(rng: Random) -> Case:
    state = 0 if rng.random() < 0.08 else _either(rng, STATE_BYTES, rng.randint(1_000, 2 * 10**8))
    kv = _either(rng, KV_BYTES, rng.randint(1, 500_000))
    flags = _random_flags(rng, hybrid=state > 0)
    return Case(flags, _random_memory(rng, flags, kv, state), kv, state)


def _either(rng: Random, usual: tuple[int, ...], unusual: int) -> int:
    return rng.choice(usual) if rng.random() < 0.6 else unusual


def _random_flags(rng: Random, *, hybrid: bool) -> dict[str, Any]:
    strategy: Strategy = rng.choice(STRATEGIES) if hybrid else "extra_buffer"
    page = rng.choice((1, 1, 1, 8, 16, 32, 64, 128, 256))
    serial = rng.random() < 0.3
    if strategy == "no_buffer" and rng.random() < 0.9:
        page, serial = 1, True  # the rest is refused, by the engine too
    if strategy == "extra_buffer_lazy" and rng.random() < 0.9:
        serial = False
    running = rng.choice((None, None, rng.randint(1, 40), rng.randint(1, 600), rng.randint(600, 9_000)))
    return {
        "context_length": rng.choice((2_048, 32_768, 131_072, 262_144, 1_048_576, rng.randint(1, 500_000))),
        "page_size": page,
        "mamba_full_memory_ratio": rng.choice((*RATIOS, rng.uniform(0.001, 8.0))),
        "max_mamba_cache_size": rng.choice((None, None, rng.randint(1, 50), rng.randint(1, 6_000))),
        "max_running_requests": running,
        "max_total_tokens": rng.choice((None, None, None, rng.randint(1, 1_000_000))),
        "mamba_radix_cache_strategy": strategy,
        "disable_overlap_schedule": serial,
        "disable_radix_cache": rng.random() < 0.2,
        "skip_decode_lock": rng.random() < 0.3,
        "speculative_num_draft_tokens": rng.choice((None, None, None, rng.randint(1, 16))),
        "attn_dp_size": rng.choice((1, 1, 2, 4, 8, 3)),
        "pp_size": 1,
        "dcp_size": rng.choice((1, 1, 1, 2, 4)),
    }


def _random_memory(rng: Random, flags: dict[str, Any], kv: int, state: int) -> float:
    """Bytes: any, as fractions of GiB, or within a byte of where one more slot or page comes to fit."""
    kind = rng.randrange(4) if state else rng.randrange(2)
    if kind == 0:
        return round(10 ** rng.uniform(7.5, 11.2))
    if kind == 1:
        return round(rng.uniform(0.2, 140.0), rng.choice((1, 2, 6))) * GIB
    slots: int = rng.randint(1, 3_000)
    drafts: int = flags["speculative_num_draft_tokens"] or 0
    if kind == 2:
        ratio: float = flags["mamba_full_memory_ratio"]
        reserve = 1 if flags["disable_radix_cache"] else rng.randint(3, 5)
        budget = state * (slots * (1 + drafts / reserve) + 1 + drafts)
        return max(1, round(budget * (1 + ratio) / ratio) + rng.randint(-1, 1))
    rows: int = rng.choice((rng.randint(1, 40), rng.randint(1, 40_000))) * flags["page_size"]
    if flags["max_mamba_cache_size"] is not None:
        slots = flags["max_mamba_cache_size"] // flags["attn_dp_size"]
    return max(1, (slots + 1) * state + rows * kv + rng.randint(-1, 1))


def random_demand(rng: Random) -> tuple[Case, int, int, int]:
    """Flags that the engine accepts, with a concurrency, KV tokens and extra slots to fit into them."""
    case = random_case(rng)
    flags = {**case.flags, "max_total_tokens": None}
    if flags["mamba_radix_cache_strategy"] == "no_buffer":
        flags.update(page_size=1, disable_overlap_schedule=True)
    if flags["mamba_radix_cache_strategy"] == "extra_buffer_lazy":
        flags["disable_overlap_schedule"] = False
    reserve = slots_per_request(SglangFlags(**flags)) if case.state_bytes else 0
    ranks = flags["attn_dp_size"]
    each = (case.state_bytes * reserve or 1) + 1_000 * case.kv_bytes
    concurrency = rng.randint(1, max(1, min(4_000, round(2 * ranks * case.memory_bytes / each))))
    tokens = rng.randint(1, max(1, round(1.5 * ranks * case.memory_bytes / case.kv_bytes)))
    demanding = Case(flags, case.memory_bytes, case.kv_bytes, case.state_bytes)
    return demanding, concurrency, tokens, rng.choice((0, rng.randint(0, 50)))
