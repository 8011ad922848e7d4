"""Properties of SGLang's pools that hold for every configuration."""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresched.capacity.sglang import (
    DoesNotFit,
    SglangFlags,
    SglangPools,
    flags_for,
    held_slots,
    ratio_of,
    slots_per_request,
    solve_pools,
)
from coresched.capacity.sglang_flags import STRATEGIES


@st.composite
def launch_flags(draw: st.DrawFn, *, speculation: bool = True) -> SglangFlags:
    """Flags that an engine starts with, none of the explicit sizes among them."""
    strategy = draw(st.sampled_from(STRATEGIES))
    serial = strategy == "no_buffer" or (strategy == "extra_buffer" and draw(st.booleans()))
    page_size = 1 if strategy == "no_buffer" else draw(st.sampled_from([1, 16, 64, 100]))
    return SglangFlags(
        context_length=draw(st.integers(1, 2_000_000)),
        page_size=page_size,
        mamba_track_interval=page_size * draw(st.integers(1, 4)),
        mamba_full_memory_ratio=draw(st.floats(0.02, 10)),
        mamba_radix_cache_strategy=strategy,
        disable_overlap_schedule=serial,
        disable_radix_cache=draw(st.booleans()),
        skip_decode_lock=draw(st.booleans()),
        speculative_num_draft_tokens=draw(st.none() | st.integers(1, 16)) if speculation else None,
        attn_dp_size=draw(st.integers(1, 8)),
        dcp_size=draw(st.sampled_from([1, 2, 4])),
    )


@dataclass(frozen=True)
class Room:
    """Memory for at least 5,000 state slots or 50 pages, so that any split of it at these ratios has both."""

    memory: int
    kv: int
    state: int

    @property
    def slots(self) -> int:
        """Slots that fit beside KV even when each brings 16 draft states."""
        return self.memory // (40 * self.state)


@st.composite
def rooms(draw: st.DrawFn, *, page_size: int) -> Room:
    memory = draw(st.integers(10**6, 160 * 10**9))
    kv = draw(st.integers(1, memory // (50 * page_size)))
    return Room(memory, kv, draw(st.integers(1, memory // 5_000)))


@st.composite
def sized_flags(draw: st.DrawFn) -> tuple[SglangFlags, Room]:
    """Flags with some explicit sizes that fit, and room for them; the model may be dense."""
    flags = draw(launch_flags())
    room = draw(rooms(page_size=flags.page_size))
    ranks = flags.attn_dp_size
    slots = draw(st.none() | st.integers(slots_per_request(flags), room.slots))
    most = room.slots if flags.disable_radix_cache else 8_000
    requests = draw(st.none() | st.integers(1, most))
    flags = replace(
        flags,
        max_mamba_cache_size=slots and slots * ranks + draw(st.integers(0, ranks - 1)),
        max_running_requests=requests and requests * ranks + draw(st.integers(0, ranks - 1)),
        max_total_tokens=draw(st.none() | st.integers(max(2, flags.page_size), 10**7)),
    )
    return flags, replace(room, state=draw(st.sampled_from([room.state, room.state, room.state, 0])))


def solved(flags: SglangFlags, room: Room) -> SglangPools:
    return solve_pools(flags, room.memory, room.kv, room.state)


@given(sized_flags())
def test_every_byte_is_accounted_for(case: tuple[SglangFlags, Room]) -> None:
    flags, room = case
    pools = solved(flags, room)
    rows = pools.kv_tokens // flags.dcp_size
    assert rows * flags.dcp_size == pools.kv_tokens
    assert rows % flags.page_size == 0
    assert pools.kv_pool_bytes == rows * room.kv
    assert pools.state_pool_bytes == (pools.state_slots + pools.padding_slots) * room.state
    used = pools.state_pool_bytes + pools.speculative_bytes + pools.kv_pool_bytes
    assert used + pools.memory_left_bytes == room.memory
    assert pools.memory_left_bytes >= 0
    if flags.max_total_tokens is None:
        assert pools.memory_left_bytes < flags.page_size * room.kv


@given(sized_flags())
def test_the_limit_named_is_the_smallest_bound(case: tuple[SglangFlags, Room]) -> None:
    flags, room = case
    pools = solved(flags, room)
    rows = pools.kv_tokens // flags.dcp_size
    bounds = {"kv tokens": rows // 2}
    if room.state:
        bounds["state slots"] = pools.state_slots // slots_per_request(flags)
    if pools.requested_running_requests is None:
        estimate = floor(rows / flags.context_length * 512) if flags.context_length else 0
        bounds["clamp"] = sorted([2_048, estimate, 4_096])[1]
    else:
        bounds["user"] = pools.requested_running_requests
        assert pools.refused_requests == pools.requested_running_requests - pools.max_running_requests
    assert pools.max_running_requests == min(bounds.values()) == bounds[pools.limit]


@given(launch_flags(speculation=False), rooms(page_size=100))
def test_slots_by_ratio_are_the_floor_in_exact_arithmetic(flags: SglangFlags, room: Room) -> None:
    ratio = Fraction(flags.mamba_full_memory_ratio)
    exact = room.memory * ratio / (1 + ratio) / room.state - 1
    slots = solved(flags, room).state_slots
    # The engine rounds as it goes; that may show on the edge of a slot only.
    edge = Fraction(room.memory, room.state) / 10**15
    assert slots == floor(exact) or (abs(slots - exact) < 1 + edge and abs(exact - round(exact)) < edge)


@given(launch_flags(), rooms(page_size=100), st.data())
def test_more_slots_never_leave_more_kv(flags: SglangFlags, room: Room, data: st.DataObject) -> None:
    slots = data.draw(st.integers(slots_per_request(flags), room.slots - 1))
    before = solved(replace(flags, max_mamba_cache_size=slots * flags.attn_dp_size), room)
    after = solved(replace(flags, max_mamba_cache_size=(slots + 1) * flags.attn_dp_size), room)
    assert after.state_slots == before.state_slots + 1
    assert after.kv_tokens <= before.kv_tokens
    assert after.speculative_bytes >= before.speculative_bytes


@given(
    launch_flags(),
    st.integers(1, 4_000),
    st.integers(1, 10**8),
    st.integers(0, 100),
    st.integers(1, 400_000),
    st.integers(0, 2 * 10**8),
)
def test_the_shortage_is_exact_to_the_byte(
    flags: SglangFlags, concurrency: int, tokens: int, extra: int, kv: int, state: int
) -> None:
    sizes: dict[str, Any] = {"kv_bytes": kv, "state_bytes": state, "extra_slots": extra}
    with pytest.raises(DoesNotFit) as refusal:
        flags_for(concurrency, tokens, flags, memory_bytes=1, **sizes)
    enough = 1 + refusal.value.short_bytes
    fit = flags_for(concurrency, tokens, flags, memory_bytes=enough, **sizes)
    requests = ceil(concurrency / flags.attn_dp_size)
    assert fit.pools.max_running_requests == requests
    assert fit.pools.limit == "user"
    assert fit.pools.refused_requests == 0
    assert fit.pools.kv_tokens * flags.attn_dp_size >= tokens
    assert fit.pools.memory_left_bytes == 0
    if state:
        assert fit.pools.state_slots == slots_per_request(flags) * requests + ceil(extra / flags.attn_dp_size)
    with pytest.raises(DoesNotFit) as refusal:
        flags_for(concurrency, tokens, flags, memory_bytes=enough - 1, **sizes)
    assert refusal.value.short_bytes == 1


@given(launch_flags(), rooms(page_size=100), st.data())
def test_the_ratio_reported_for_slots_gives_them_or_one_fewer(
    flags: SglangFlags, room: Room, data: st.DataObject
) -> None:
    # With speculation the engine assumes 48 requests, and without radix cache those would be the slots.
    flags = replace(flags, disable_radix_cache=flags.disable_radix_cache and not flags.draft_tokens)
    slots = data.draw(st.integers(slots_per_request(flags) + 1, room.slots))
    ratio = ratio_of(slots, flags, room.memory, room.state)
    pools = solved(replace(flags, mamba_full_memory_ratio=ratio), room)
    assert pools.state_slots in (slots, slots - 1)


@given(launch_flags())
def test_no_request_holds_more_than_its_reserve(flags: SglangFlags) -> None:
    held = held_slots(flags)
    assert 1 <= held.running <= slots_per_request(flags)
    assert held.retained <= held.running
