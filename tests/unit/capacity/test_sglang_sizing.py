"""From a wanted concurrency to flags, on cases worked out by hand: a slot is 1,000 bytes, a KV token 10."""

from dataclasses import replace
from typing import Any

import pytest

from coresched.capacity.sglang import DoesNotFit, SglangFit, SglangFlags, flags_for, ratio_of, solve_pools
from coresched.errors import InputError

FLAGS = SglangFlags(page_size=16)


def fit(
    concurrency: int, kv_tokens: int, flags: SglangFlags = FLAGS, state: int = 1_000, **changes: Any
) -> SglangFit:
    sizes = {"memory_bytes": 100_000, "kv_bytes": 10, "state_bytes": state, **changes}
    return flags_for(concurrency, kv_tokens, flags, **sizes)


def test_slots_are_set_outright() -> None:
    found = fit(8, 5_000)
    assert found.flags == replace(FLAGS, max_mamba_cache_size=40, max_running_requests=8)
    assert found.pools.max_running_requests == 8
    assert found.pools.limit == "user"
    assert found.pools.kv_tokens == 5_888  # (100,000 - 41 * 1,000) // 10 in pages of 16


def test_extra_slots_are_not_for_running_requests() -> None:
    found = fit(8, 4_000, extra_slots=9)
    assert found.flags.max_mamba_cache_size == 49
    assert found.pools.max_running_requests == 8


def test_ranks_share_the_demand_and_the_flags_are_of_the_engine() -> None:
    flags = replace(FLAGS, attn_dp_size=4)
    found = fit(30, 20_000, flags, extra_slots=2)
    # 8 requests, 1 extra slot and 5,000 tokens a rank
    assert (found.flags.max_mamba_cache_size, found.flags.max_running_requests) == (4 * 41, 32)
    assert (found.pools.state_slots, found.pools.max_running_requests) == (41, 8)


def test_a_dense_model_gets_no_slots() -> None:
    found = fit(8, 5_000, state=0)
    assert (found.flags.max_mamba_cache_size, found.flags.max_running_requests) == (None, 8)


def test_draft_states_count() -> None:
    flags = replace(FLAGS, speculative_num_draft_tokens=3)
    found = fit(8, 3_000, flags)
    assert found.pools.speculative_bytes == 27_000
    assert found.pools.kv_tokens == 3_200  # 100,000 - 41,000 - 27,000


def test_too_much_kv_says_how_many_bytes_are_short() -> None:
    with pytest.raises(DoesNotFit) as refusal:
        fit(8, 6_001)
    # 6,016 tokens in whole pages and 41 slots: 101,160 bytes
    assert refusal.value.short_bytes == 1_160
    assert str(refusal.value) == (
        "concurrency is 8; 5900 of the 6016 KV tokens it needs fit beside 41000 bytes of 40 state slots, "
        "1160 bytes short; lower it or give the pools more memory"
    )
    assert fit(8, 6_001, memory_bytes=101_160).pools.kv_tokens == 6_016


def test_too_many_slots_say_so() -> None:
    with pytest.raises(DoesNotFit) as refusal:
        fit(25, 100, replace(FLAGS, attn_dp_size=1))
    assert str(refusal.value) == (
        "concurrency is 25; its 125 state slots alone take 126000 of 100000 bytes, with the KV demand 27120 "
        "bytes short; lower it or give the pools more memory"
    )


def test_a_refusal_names_the_ranks() -> None:
    with pytest.raises(DoesNotFit, match="concurrency is 100, 50 on each of 2 ranks; its 250 state slots"):
        fit(100, 100, replace(FLAGS, attn_dp_size=2))


def test_a_dense_refusal_speaks_of_kv_only() -> None:
    with pytest.raises(
        DoesNotFit, match="concurrency is 1; 10000 of the 10016 KV tokens it needs fit, 160 bytes"
    ):
        fit(1, 10_001, state=0)


def test_every_request_needs_two_tokens() -> None:
    flags = SglangFlags()
    assert flags_for(5, 1, flags, memory_bytes=100, kv_bytes=10, state_bytes=0).pools.kv_tokens == 10
    with pytest.raises(DoesNotFit, match="20 bytes short"):
        flags_for(6, 1, flags, memory_bytes=100, kv_bytes=10, state_bytes=0)


def test_a_cap_on_tokens_below_the_demand_is_named() -> None:
    with pytest.raises(InputError) as refusal:
        fit(8, 5_000, replace(FLAGS, max_total_tokens=5_007))
    assert str(refusal.value) == (
        "max_total_tokens is 5007; the KV demand is 5008 tokens a rank; raise it or leave it out"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"concurrency": 0}, "concurrency must be at least 1, got 0"),
        ({"kv_tokens": 0}, "kv_tokens must be at least 1, got 0"),
        ({"kv_tokens": 1.5}, "kv_tokens must be an int, got 1.5 of type float"),
        ({"extra_slots": -1}, "extra_slots must be at least 0, got -1"),
        ({"kv_bytes": 0}, "kv_bytes must be at least 1, got 0"),
        ({"state_bytes": None}, "state_bytes must be an int, got None of type NoneType"),
        ({"memory_bytes": -1.0}, "memory_bytes must be above 0, got -1.0"),
    ],
)
def test_bad_demands_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        fit(**{"concurrency": 8, "kv_tokens": 100, **changes})
    assert str(refusal.value) == message


def test_the_ratio_of_slots() -> None:
    assert ratio_of(49, SglangFlags(), 100_000, 1_000) == 1.0
    # D = 5, S = 5: 22 slots, their drafts (22 more), the padding slot and its 5: 50,000 bytes
    assert ratio_of(22, SglangFlags(speculative_num_draft_tokens=5), 100_000, 1_000) == 1.0
    flags = SglangFlags(
        context_length=1_000, mamba_full_memory_ratio=ratio_of(49, SglangFlags(), 100_000, 1_000)
    )
    assert solve_pools(flags, 100_000, 10, 1_000).state_slots == 49


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        (99, "state_slots is 99; their 100000 bytes leave nothing of 100000 for KV; lower it"),
        (0, "state_slots must be at least 1, got 0"),
    ],
)
def test_slots_without_a_ratio_are_named(slots: int, message: str) -> None:
    with pytest.raises(InputError) as refusal:
        ratio_of(slots, SglangFlags(), 100_000, 1_000)
    assert str(refusal.value) == message
