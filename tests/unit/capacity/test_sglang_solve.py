"""The pool solve on cases worked out by hand: a slot is 1,000 bytes, a KV token 10."""

from dataclasses import replace
from typing import Any

import pytest

from coresched.capacity.sglang import SglangFlags, SglangPools, solve_pools
from coresched.errors import InputError

FLAGS = SglangFlags(context_length=1_000)
GIB = 1 << 30


def solve(flags: SglangFlags, memory: float = 100_000, kv: int = 10, state: int = 1_000) -> SglangPools:
    return solve_pools(flags, memory, kv, state)


def test_the_ratio_leaves_one_slot_for_padding_and_the_rest_to_kv() -> None:
    # r = 1: b = 50,000 holds 50 slots, one of them padding; KV gets 50,000 bytes. S = 5, and 49 // 5 = 9.
    assert solve(replace(FLAGS, mamba_full_memory_ratio=1.0), 100_007) == SglangPools(
        state_slots=49,
        padding_slots=1,
        slots_per_request=5,
        kv_tokens=5_000,
        max_running_requests=9,
        requested_running_requests=None,
        limit="state slots",
        state_pool_bytes=50_000,
        speculative_bytes=0,
        kv_pool_bytes=50_000,
        memory_left_bytes=7,
    )


def test_kv_gets_what_a_rounded_slot_count_leaves() -> None:
    # b = 50,450 still makes 49 slots; the other 900 bytes are KV.
    pools = solve(replace(FLAGS, mamba_full_memory_ratio=1.0), 100_900)
    assert (pools.state_slots, pools.kv_tokens) == (49, 5_090)


def test_whole_pages_only() -> None:
    pools = solve(replace(FLAGS, mamba_full_memory_ratio=1.0, page_size=64))
    assert pools.kv_tokens == 4_992  # 78 pages of 64
    assert pools.memory_left_bytes == 80


def test_pages_divide_the_interval_of_saved_states_where_states_are_saved() -> None:
    paged = replace(FLAGS, page_size=48)
    for flags in (replace(paged, mamba_track_interval=96), replace(paged, disable_radix_cache=True)):
        assert solve(flags).kv_tokens % 48 == 0
    assert solve(paged, state=0).kv_tokens == 9_984  # a dense model's


def test_explicit_slots_make_the_ratio_void() -> None:
    for ratio in (0.1, 0.9, 3.0):
        pools = solve(replace(FLAGS, max_mamba_cache_size=30, mamba_full_memory_ratio=ratio))
        assert (pools.state_slots, pools.kv_tokens, pools.max_running_requests) == (30, 6_900, 6)


def test_attention_dp_ranks_share_slots_and_requests() -> None:
    flags = replace(FLAGS, max_mamba_cache_size=90, max_running_requests=16, attn_dp_size=4)
    pools = solve(flags)
    assert (pools.state_slots, pools.requested_running_requests, pools.max_running_requests) == (22, 4, 4)
    assert pools.kv_tokens == 7_700


def test_without_radix_cache_every_request_has_one_slot() -> None:
    pools = solve(replace(FLAGS, disable_radix_cache=True, max_running_requests=20))
    assert (pools.state_slots, pools.slots_per_request, pools.max_running_requests) == (20, 1, 20)
    assert pools.kv_tokens == 7_900
    open_ended = solve(replace(FLAGS, disable_radix_cache=True, mamba_full_memory_ratio=1.0))
    assert (open_ended.state_slots, open_ended.max_running_requests) == (49, 49)


def test_speculation_solves_for_slots_and_drafts_together() -> None:
    # r = 1, D = 2, S = 5: (50,000 - 1,000 * 3) // (1,000 * 1.4) = 33 slots, 33 // 5 = 6 requests, 14 drafts.
    flags = replace(FLAGS, mamba_full_memory_ratio=1.0, speculative_num_draft_tokens=2)
    pools = solve(flags)
    assert (pools.state_slots, pools.max_running_requests, pools.speculative_bytes) == (33, 6, 14_000)
    assert pools.kv_tokens == (100_000 - 14_000 - 34_000) // 10


def test_speculation_beside_explicit_slots_reserves_for_the_requests_asked() -> None:
    flags = replace(FLAGS, max_mamba_cache_size=30, max_running_requests=2, speculative_num_draft_tokens=4)
    pools = solve(flags)
    assert (pools.speculative_bytes, pools.kv_tokens) == (12_000, (100_000 - 12_000 - 31_000) // 10)
    assert (pools.max_running_requests, pools.limit) == (2, "user")


def test_a_dense_model_has_no_state_pool() -> None:
    flags = replace(FLAGS, max_mamba_cache_size=30, max_running_requests=7, speculative_num_draft_tokens=4)
    pools = solve(flags, state=0)
    assert (pools.state_slots, pools.padding_slots, pools.slots_per_request) == (0, 0, 0)
    assert (pools.kv_tokens, pools.max_running_requests, pools.limit) == (10_000, 7, "user")
    assert pools.state_pool_bytes == pools.speculative_bytes == 0


def test_decode_context_parallelism_multiplies_request_tokens_only() -> None:
    pools = solve(replace(FLAGS, dcp_size=4, max_mamba_cache_size=30, page_size=16))
    assert (pools.kv_tokens, pools.kv_pool_bytes, pools.state_slots) == (6_896 * 4, 68_960, 30)


def test_a_cap_on_tokens_is_cut_to_whole_pages() -> None:
    flags = replace(FLAGS, max_mamba_cache_size=30, page_size=16, max_total_tokens=999)
    pools = solve(flags)
    assert (pools.kv_tokens, pools.kv_pool_bytes, pools.memory_left_bytes) == (992, 9_920, 59_080)
    assert solve(replace(flags, max_total_tokens=10**6)).kv_tokens == 6_896


@pytest.mark.parametrize(
    ("memory", "context", "limit", "running"),
    [
        (1_000_000, 100_000, "clamp", 2_048),  # 100,000 tokens / 100,000 * 512 = 512, raised to 2,048
        (1_000_000, 17_000, "clamp", 3_011),  # 3,011.7 by the estimate
        (1_000_000, 1_000, "clamp", 4_096),  # 51,200, lowered to 4,096
        (30_000, 1_000, "kv tokens", 1_500),  # 3,000 tokens // 2
    ],
)
def test_left_open_the_engine_estimates_within_its_clamp(
    memory: int, context: int, limit: str, running: int
) -> None:
    pools = solve(SglangFlags(context_length=context), memory, state=0)
    assert (pools.max_running_requests, pools.limit) == (running, limit)


def test_half_the_tokens_bound_the_requests_asked_for() -> None:
    pools = solve(replace(FLAGS, max_running_requests=5_001), state=0)
    assert (pools.max_running_requests, pools.limit, pools.refused_requests) == (5_000, "kv tokens", 1)


def test_32_requests_asked_and_9_running_is_the_state_pool() -> None:
    # sgl-project/sglang#38846: --max-running-requests 32, and one log line that says 9. With S = 5, any K
    # from 45 to 49 does that, however much KV there is.
    for slots in (45, 49):
        flags = replace(FLAGS, max_running_requests=32, max_mamba_cache_size=slots)
        pools = solve(flags, 10_000_000)
        assert (pools.max_running_requests, pools.limit, pools.refused_requests) == (9, "state slots", 23)


def test_a_pool_sized_at_4_slots_a_request_runs_three_quarters() -> None:
    # MiaAI-Lab/Qwen3.8-27B-SGLang-DGX-Spark#7: 16 requests at 4 slots each, but extra_buffer reserves 5:
    # 64 // 5 = 12.
    flags = replace(FLAGS, max_running_requests=16, max_mamba_cache_size=16 * 4)
    pools = solve(flags, 10_000_000)
    assert (pools.max_running_requests, pools.limit, pools.refused_requests) == (12, "state slots", 4)
    enough = solve(replace(flags, max_mamba_cache_size=16 * 5), 10_000_000)
    assert (enough.max_running_requests, enough.limit, enough.refused_requests) == (16, "user", 0)


def test_an_empty_ratio_is_0_9_and_starves_kv() -> None:
    # MiaAI-Lab/Qwen3.8-Flash-Next-Dual-DGX-Sparks#21: left unset, the flag is 0.9, and 0.9 / 1.9 = 47 % of
    # the memory becomes states; with the 0.3 that was meant it is 23 %, and KV 1.46 times as large.
    memory, kv, state = 40 * GIB, 10_240, 16_097_280
    unset = solve(SglangFlags(context_length=262_144), memory, kv, state)
    meant = solve(SglangFlags(context_length=262_144, mamba_full_memory_ratio=0.3), memory, kv, state)
    assert unset.state_pool_bytes / memory == pytest.approx(0.9 / 1.9, abs=1e-3)
    assert meant.kv_tokens / unset.kv_tokens == pytest.approx(1.9 / 1.3, abs=2e-3)
    assert unset.limit == meant.limit == "state slots"


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({}, {"memory_bytes": 0}, "memory_bytes must be above 0, got 0"),
        ({}, {"memory_bytes": float("inf")}, "memory_bytes must be a finite number, got inf"),
        (
            {},
            {"memory_bytes": 2.0**54},
            "memory_bytes must be at most 9.0072e+15, got 1.8014398509481984e+16",
        ),
        ({}, {"kv_bytes": 0}, "kv_bytes must be at least 1, got 0"),
        ({}, {"state_bytes": -1}, "state_bytes must be at least 0, got -1"),
        ({}, {"state_bytes": 1e3}, "state_bytes must be an int, got 1000.0 of type float"),
        (
            {},
            {"memory_bytes": 12_000},
            "mamba_full_memory_ratio is 0.9 of 12000 bytes; that makes 4 state slots of 1000 bytes "
            "besides the padding slot, fewer than the 5 that one request needs, so the engine refuses to "
            "start; raise it",
        ),
        (
            {"max_mamba_cache_size": 9, "attn_dp_size": 2},
            {},
            "max_mamba_cache_size is 9 over attn_dp_size 2; that makes 4 state slots of 1000 bytes "
            "besides the padding slot, fewer than the 5 that one request needs, so the engine refuses to "
            "start; raise it",
        ),
        (
            {"max_mamba_cache_size": 99},
            {},
            "memory_bytes is 100000; 100000 bytes of states leave no page of 1 KV tokens of 10 bytes; "
            "raise it or lower the slots",
        ),
        (
            {"max_total_tokens": 63, "page_size": 64},
            {},
            "max_total_tokens is 63, less than a page of 64; raise it",
        ),
        (
            {"page_size": 48},
            {},
            "page_size is 48; the engine starts only where mamba_track_interval, 256, is a multiple of it; "
            "use a page_size that divides 256",
        ),
        (
            {"page_size": 64, "mamba_track_interval": 96},
            {},
            "page_size is 64; the engine starts only where mamba_track_interval, 96, is a multiple of it; "
            "use a page_size that divides 96",
        ),
        (
            {"max_mamba_cache_size": 98},
            {"memory_bytes": 99_010},
            "memory_bytes leaves room for 1 KV token; the engine runs one request for every 2; raise it",
        ),
        (
            {"context_length": None},
            {},
            "context_length is None and so is max_running_requests, which the engine derives from it; "
            "give the model's context length in tokens or the running requests",
        ),
    ],
)
def test_what_the_engine_would_refuse_is_refused(
    changes: dict[str, Any], arguments: dict[str, Any], message: str
) -> None:
    sizes = {"memory_bytes": 100_000, "kv_bytes": 10, "state_bytes": 1_000, **arguments}
    with pytest.raises(InputError) as refusal:
        solve_pools(replace(FLAGS, **changes), **sizes)
    assert str(refusal.value) == message
