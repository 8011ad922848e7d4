"""SGLang's launch flags, the slots they reserve and the slots they hold."""

from dataclasses import replace
from typing import Any

import pytest

from coresched.capacity.sglang import HeldSlots, SglangFlags, held_slots, slots_per_request
from coresched.errors import InputError

DEFAULT = SglangFlags()
SERIAL = SglangFlags(disable_overlap_schedule=True)
LAZY = SglangFlags(mamba_radix_cache_strategy="extra_buffer_lazy")
NO_BUFFER = SglangFlags(mamba_radix_cache_strategy="no_buffer", disable_overlap_schedule=True)


@pytest.mark.parametrize(
    ("flags", "reserved", "with_skip"),
    [
        (NO_BUFFER, 3, 3),
        (DEFAULT, 5, 4),
        (SERIAL, 4, 3),
        (SglangFlags(pp_size=2), 4, 3),  # a pipeline does not overlap
        (LAZY, 4, 3),
        (SglangFlags(disable_radix_cache=True), 1, 1),
    ],
)
def test_reserved_slots_by_strategy(flags: SglangFlags, reserved: int, with_skip: int) -> None:
    assert slots_per_request(flags) == reserved
    assert slots_per_request(replace(flags, skip_decode_lock=True)) == with_skip


@pytest.mark.parametrize(
    ("flags", "active_and_tracking", "locked", "retained"),
    [
        (NO_BUFFER, 1, 1, 1),
        (DEFAULT, 3, 1, 1),
        (SERIAL, 2, 1, 1),
        (LAZY, 2, 1, 1),
        (replace(DEFAULT, skip_decode_lock=True), 3, 0, 1),
        (SglangFlags(disable_radix_cache=True), 1, 0, 0),  # nothing is cached, so nothing is kept
    ],
)
def test_held_slots_by_strategy(
    flags: SglangFlags, active_and_tracking: int, locked: int, retained: int
) -> None:
    held = held_slots(flags)
    assert held.active + held.tracking == active_and_tracking
    assert (held.locked, held.retained) == (locked, retained)
    assert held.running == active_and_tracking + locked <= slots_per_request(flags)


def test_one_slot_in_five_is_reserved_but_never_reached() -> None:
    # Seen in decode logs of a server with the default strategy: 4 slots held per request, 5 reserved.
    assert held_slots(DEFAULT) == HeldSlots(active=1, tracking=2, locked=1, retained=1)
    assert held_slots(DEFAULT).running == 4
    assert slots_per_request(DEFAULT) == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"page_size": 0}, "page_size must be at least 1, got 0"),
        ({"page_size": 1.0}, "page_size must be an int, got 1.0 of type float"),
        ({"context_length": True}, "context_length must be an int, got True of type bool"),
        ({"max_mamba_cache_size": -3}, "max_mamba_cache_size must be at least 1, got -3"),
        ({"max_running_requests": 0}, "max_running_requests must be at least 1, got 0"),
        ({"max_total_tokens": "9"}, "max_total_tokens must be an int, got '9' of type str"),
        (
            {"speculative_num_draft_tokens": 10**400},
            "speculative_num_draft_tokens must be at most 2**63 - 1, got an int of 1329 bits",
        ),
        ({"mamba_track_interval": 0}, "mamba_track_interval must be at least 1, got 0"),
        ({"attn_dp_size": 0}, "attn_dp_size must be at least 1, got 0"),
        ({"pp_size": None}, "pp_size must be an int, got None of type NoneType"),
        ({"dcp_size": 0}, "dcp_size must be at least 1, got 0"),
        ({"mamba_full_memory_ratio": 0.0}, "mamba_full_memory_ratio must be above 0, got 0.0"),
        (
            {"mamba_full_memory_ratio": float("nan")},
            "mamba_full_memory_ratio must be a finite number, got nan",
        ),
        ({"mamba_full_memory_ratio": 1e300}, "mamba_full_memory_ratio must be at most 1e+09, got 1e+300"),
        ({"skip_decode_lock": 1}, "skip_decode_lock must be True or False, got a value of type int"),
        (
            {"mamba_radix_cache_strategy": "auto"},
            "mamba_radix_cache_strategy is 'auto'; "
            "it must be one of no_buffer, extra_buffer, extra_buffer_lazy",
        ),
        (
            {
                "mamba_radix_cache_strategy": "no_buffer",
                "disable_overlap_schedule": True,
                "page_size": 64,
            },
            "page_size is 64; the engine starts with no_buffer only at page_size 1, "
            "so set that or use extra_buffer",
        ),
        (
            {"mamba_radix_cache_strategy": "no_buffer"},
            "disable_overlap_schedule is False; the engine starts with no_buffer only when it is True, "
            "so set it or use extra_buffer",
        ),
        (
            {"mamba_radix_cache_strategy": "extra_buffer_lazy", "disable_overlap_schedule": True},
            "disable_overlap_schedule is True, so scheduling does not overlap, which extra_buffer_lazy "
            "needs; use extra_buffer",
        ),
        (
            {"mamba_radix_cache_strategy": "extra_buffer_lazy", "pp_size": 4},
            "pp_size is 4, so scheduling does not overlap, which extra_buffer_lazy needs; use extra_buffer",
        ),
    ],
)
def test_bad_flags_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        SglangFlags(**changes)
    assert str(refusal.value) == message


def test_without_radix_cache_the_strategy_does_not_matter() -> None:
    flags = SglangFlags(mamba_radix_cache_strategy="no_buffer", page_size=64, disable_radix_cache=True)
    assert slots_per_request(flags) == 1


def test_requests_asked_of_a_rank() -> None:
    assert SglangFlags().requested_running_requests is None
    assert SglangFlags(max_running_requests=30, attn_dp_size=4).requested_running_requests == 7
    assert SglangFlags(max_running_requests=3, attn_dp_size=4).requested_running_requests == 1
    # With speculation the engine asks for 48 when nobody does.
    assert SglangFlags(speculative_num_draft_tokens=4).requested_running_requests == 48
    assert SglangFlags(speculative_num_draft_tokens=4, attn_dp_size=8).requested_running_requests == 6


def test_command_line_of_a_hybrid_and_of_a_dense_model() -> None:
    flags = SglangFlags(
        context_length=4096,
        page_size=64,
        max_mamba_cache_size=490,
        max_running_requests=98,
        disable_overlap_schedule=True,
        attn_dp_size=2,
        skip_decode_lock=True,
    )
    shared = ["--page-size", "64"]
    limits = ["--max-running-requests", "98", "--context-length", "4096"]
    rest = ["--disable-overlap-schedule", "--attn-dp-size", "2"]
    state = ["--mamba-radix-cache-strategy", "extra_buffer", "--max-mamba-cache-size", "490"]
    assert flags.command_line(hybrid=True) == (*shared, *state, *limits, *rest)
    assert flags.command_line(hybrid=False) == (*shared, *limits, *rest)
    assert flags.environment() == {"SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK": "1"}


def test_command_line_names_an_interval_of_its_own() -> None:
    flags = SglangFlags(mamba_track_interval=512)
    words = flags.command_line(hybrid=True)
    assert words[words.index("--mamba-track-interval") + 1] == "512"
    for defaults in (flags.command_line(hybrid=False), SglangFlags().command_line(hybrid=True)):
        assert "--mamba-track-interval" not in defaults


def test_command_line_names_the_ratio_only_where_it_counts() -> None:
    assert "--mamba-full-memory-ratio" in SglangFlags().command_line(hybrid=True)
    assert "--mamba-full-memory-ratio" not in SglangFlags().command_line(hybrid=False)
    assert "--mamba-full-memory-ratio" not in SglangFlags(max_mamba_cache_size=9).command_line(hybrid=True)
    radix_off = SglangFlags(disable_radix_cache=True)
    assert "--mamba-radix-cache-strategy" not in radix_off.command_line(hybrid=True)
    assert SglangFlags().environment() == {}
