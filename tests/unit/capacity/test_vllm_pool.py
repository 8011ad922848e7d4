"""vLLM's block pool, from memory to what fits and back."""

from typing import Any

import pytest

from coresched import footprint
from coresched.capacity.vllm import (
    BlockLayout,
    block_layout,
    blocks_needed,
    engine_flags,
    fitting_concurrency,
    memory_for,
    sequence_limits,
    trajectory_blocks,
    usable_blocks,
)
from coresched.errors import InputError


def layout_of(name: str, tp: int = 4, **options: Any) -> BlockLayout:
    layout = footprint(name, "vllm", tp, **options).layout
    assert layout is not None
    return layout


# Blocks of 512 tokens, 7 layers a group, 1 attention and 5 state groups, 4,128,768 bytes a block
LING = layout_of("Ling-3.0-flash")
DENSE = layout_of("Llama-3.1-8B")


def layers(attention: int, state: int, **changes: Any) -> BlockLayout:
    sizes: dict[str, Any] = {"kv_layer_bytes": 1_024, "state_layer_bytes": 100_000, "mla": False} | changes
    return block_layout(attention_stages=[0] * attention, state_stages=[0] * state, **sizes)


def test_block_tokens_are_the_least_whose_page_takes_a_state() -> None:
    assert layers(4, 12).block_tokens == 112  # 100,000 / 1,024 = 97.7, in steps of 16
    assert layers(4, 12, mla=True).block_tokens == 128
    assert layers(4, 12, block_tokens=64).block_tokens == 128  # in steps of --block-size
    assert layers(4, 12, kernel_block_tokens=32).block_tokens == 128
    assert layers(4, 12, block_tokens=48, kernel_block_tokens=32).block_tokens == 160  # 144, then by 32
    assert layers(4, 12, block_tokens=1_024).block_tokens == 1_024  # large enough as it is
    assert layers(4, 12, block_tokens=1_000).block_tokens == 1_008  # but not in steps of the kernel's 16
    assert layers(4, 12, state_layer_bytes=98 * 1_024).page_padding == pytest.approx(112 / 98 - 1)
    assert layers(4, 0).block_tokens == 16


def test_groups_are_as_large_as_the_smaller_kind_unless_the_larger_pads_little() -> None:
    def sizes(attention: int, state: int) -> tuple[int, int, int, int, int]:
        made = layers(attention, state)
        return (
            made.group_layers,
            made.attention_groups,
            made.state_groups,
            made.attention_padding_layers,
            made.state_padding_layers,
        )

    assert sizes(7, 35) == (7, 1, 5, 0, 0)
    assert sizes(4, 21) == (4, 1, 6, 0, 3)
    assert sizes(8, 11) == (11, 1, 1, 3, 0)  # 11 < 1.5 * 8
    assert sizes(8, 12) == (8, 1, 2, 0, 4)  # 12 is not
    assert sizes(30, 10) == (10, 3, 1, 0, 0)
    assert sizes(32, 0) == (32, 1, 0, 0, 0)
    assert sizes(0, 64) == (64, 0, 1, 0, 0)


def test_padding_layers_make_a_kv_token_dearer() -> None:
    assert layers(8, 11).kv_bytes == 11 * 1_024


def test_a_model_without_layers_is_refused() -> None:
    with pytest.raises(InputError, match="a model of 0 layers has no cache"):
        layers(0, 0)


def test_one_block_of_the_pool_is_the_null_block() -> None:
    assert usable_blocks(LING, 0) == 0
    assert usable_blocks(LING, LING.bytes_per_block) == 0
    assert usable_blocks(LING, 10 * LING.bytes_per_block - 1) == 8
    assert usable_blocks(LING, 10 * LING.bytes_per_block) == 9


def test_blocks_of_a_trajectory() -> None:
    assert trajectory_blocks(LING, 80_000, running=False) == 157 + 5
    assert trajectory_blocks(LING, 80_000, running=True) == 157 + 5 * 2
    assert trajectory_blocks(LING, 80_000, running=True, draft_tokens=3) == 157 + 5 * 5
    assert trajectory_blocks(LING, 80_000, running=True, prefix_caching=False) == 157 + 5
    assert trajectory_blocks(LING, 80_000, running=False, prefix_caching=False) == 0
    assert trajectory_blocks(LING, 512, running=False) == 1 + 5
    assert trajectory_blocks(LING, 513, running=False) == 2 + 5
    assert trajectory_blocks(DENSE, 80_000, running=True, draft_tokens=3) == 5_000
    spread = layout_of("Ling-3.0-flash", dcp=4)
    assert trajectory_blocks(spread, 80_000, running=False) == 40 + 5


def test_mamba2_layers_ask_for_a_block_more_while_a_request_runs() -> None:
    nemotron = layout_of("Nemotron-3-Nano-30B-A3B")
    kv, states = nemotron.attention_groups, nemotron.state_groups
    assert trajectory_blocks(nemotron, 1, running=True) == kv + 3 * states
    assert trajectory_blocks(nemotron, 1, running=True, draft_tokens=2) == kv + 5 * states
    assert trajectory_blocks(nemotron, 1, running=False) == kv + states
    assert trajectory_blocks(nemotron, 1, running=True, prefix_caching=False) == kv + states
    assert [layout_of(name).checkpoint_blocks for name in ("Falcon-H1-7B", "Qwen3-Next-80B-A3B")] == [1, 0]


def test_a_model_without_attention_keeps_only_running_states() -> None:
    mamba = layers(0, 64)
    assert (mamba.bytes_per_block, mamba.kv_bytes, mamba.state_bytes) == (6_400_000, 0, 6_400_000)
    assert trajectory_blocks(mamba, 80_000, running=True, draft_tokens=2) == 3
    assert trajectory_blocks(mamba, 80_000, running=False) == 0
    assert mamba.shortest_hit_tokens is None
    assert mamba.hit_tokens(10_000) == 0
    memory = 101 * mamba.bytes_per_block
    assert fitting_concurrency(mamba, memory, 1_000) == 100
    assert fitting_concurrency(mamba, memory, 1_000, running_share=0.5) == 200
    with pytest.raises(InputError, match="running_share is 0; idle trajectories hold no block here"):
        fitting_concurrency(mamba, memory, 1_000, running_share=0)


def test_a_prefix_shorter_than_a_block_never_hits() -> None:
    assert LING.shortest_hit_tokens == 512
    assert [LING.hit_tokens(tokens) for tokens in (0, 511, 512, 1_535, 1_536)] == [0, 0, 512, 1_024, 1_536]
    assert DENSE.hit_tokens(100) == 96
    assert layout_of("Ling-3.0-flash", dcp=4).shortest_hit_tokens == 512  # one rank's block, beside states
    assert layers(32, 0, dcp=4).shortest_hit_tokens == 64


def test_limits_of_max_num_seqs() -> None:
    limits = sequence_limits(LING, 1_000 * LING.bytes_per_block)
    assert limits.start == 1_000
    assert limits.run == 999 // 11
    assert sequence_limits(LING, 1_000 * LING.bytes_per_block, draft_tokens=3).run == 999 // 26
    assert sequence_limits(DENSE, 1_000 * DENSE.bytes_per_block).start is None


def test_blocks_of_a_mixed_set() -> None:
    # 10 trajectories of 80,000 tokens, 3 of them running: ceil(0.3 * 10), for 0.3 is taken as written
    assert blocks_needed(LING, 10, 80_000, running_share=0.3) == 3 * 167 + 7 * 162
    assert blocks_needed(LING, 11, 80_000, running_share=0.3) == 4 * 167 + 7 * 162
    assert blocks_needed(LING, 0, 80_000) == 0


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("drafts", [0, 4])
@pytest.mark.parametrize("tokens", [1, 3_000, 81_920])
def test_what_fits_is_the_inverse_of_what_is_needed(tokens: int, drafts: int, share: float) -> None:
    options: dict[str, Any] = {"running_share": share, "draft_tokens": drafts}
    for memory in (0, 10**8, 7 * 10**10):
        most = fitting_concurrency(LING, memory, tokens, **options)
        assert blocks_needed(LING, most, tokens, **options) <= usable_blocks(LING, memory)
        assert blocks_needed(LING, most + 1, tokens, **options) > usable_blocks(LING, memory)
    for concurrency in (1, 98, 859):
        memory = memory_for(LING, concurrency, tokens, **options)
        assert fitting_concurrency(LING, memory, tokens, **options) >= concurrency
        assert blocks_needed(LING, concurrency, tokens, **options) > usable_blocks(LING, memory - 1)


def test_flags_for_a_wanted_concurrency() -> None:
    memory = memory_for(LING, 98, 81_920)
    assert memory == (98 * 170 + 1) * 4_128_768
    assert engine_flags(LING, running=98, memory_bytes=memory) == (
        "--enable-prefix-caching",
        "--max-num-seqs",
        "98",
        "--kv-cache-memory-bytes",
        str(memory),
        "--scheduler-cls",
        "coresched_vllm.RoutingPrefix",
    )
    two_states = engine_flags(LING, running=98, memory_bytes=memory, one_state_per_trajectory=False)
    assert "--scheduler-cls" not in two_states
    with pytest.raises(InputError, match=r"running is 98; 1,000,000,000 bytes run 21 at most"):
        engine_flags(LING, running=98, memory_bytes=10**9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: usable_blocks(LING, -1), "memory_bytes is -1; it must be an integer"),
        (lambda: usable_blocks(LING, 1e9), "memory_bytes is 1000000000.0; it must be an integer"),  # type: ignore
        (lambda: trajectory_blocks(LING, -5, running=True), "tokens is -5; it must be an integer"),
        (lambda: LING.hit_tokens(-1), "prefix_tokens is -1; it must be an integer"),
        (
            lambda: blocks_needed(LING, 1, 1, running_share=1.5),
            "running_share is 1.5; it must be a number from 0",
        ),
        (lambda: blocks_needed(LING, 1, 1, running_share=True), "running_share is true; it must be a number"),
        (lambda: blocks_needed(LING, 1, 1, running_share=float("nan")), "running_share is NaN; it must be"),
        (lambda: fitting_concurrency(LING, 1, 0), "tokens is 0; it must be an integer from 1"),
        (lambda: layers(4, 4, block_tokens=0), "block_tokens is 0; it must be an integer from 1"),
        (lambda: layers(4, 4, kernel_block_tokens=0), "kernel_block_tokens is 0; it must be an integer"),
    ],
)
def test_arguments_are_refused_by_name(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
