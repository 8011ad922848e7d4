"""What the examination says: a line about each fault, and nothing about engines as their flags make them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_reports import GIB, LING_KV, LING_STATE, VLLM_INFO, VLLM_LOG, sglang_info, sglang_log, tiny_model
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coresched.capacity.footprint import footprint
from coresched.capacity.observed import Finding, ObservedPools, examine, observe_log
from coresched.capacity.observed.priced import price
from coresched.capacity.observed.sglang_report import read_server_info
from coresched.capacity.observed.vllm_report import read_metrics
from coresched.capacity.sglang import SglangFlags, solve_pools
from coresched.capacity.vllm import trajectory_blocks, usable_blocks
from coresched.errors import InputError

FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def sglang(flags: dict[str, object] | None = None, **pools: Any) -> ObservedPools:
    return read_server_info(sglang_info(flags or {}, **pools), "here")


def found(observed: ObservedPools, concurrency: int | None = None, **model: Any) -> dict[str, Finding]:
    """The findings by topic; there is at most one of a topic in these cases."""
    got = examine(observed, price(observed, **model), concurrency)
    by_topic = {finding.topic: finding for finding in got}
    assert len(by_topic) == len(got), got
    for finding in got:
        assert finding.text.isprintable()
    return by_topic


def off(findings: dict[str, Finding]) -> set[str]:
    return {topic for topic, finding in findings.items() if finding.status == "off"}


# ---------------------------------------------------------------- SGLang


def test_ling_as_its_flags_make_it() -> None:
    got = found(sglang(), 61)
    assert not off(got)
    assert got["pools"].text == (
        "8,038,279 KV tokens of 8,064 bytes and 306 state slots of 18,995,200 bytes, as the flags give"
    )
    assert got["concurrency"].text == "61 requests run at once, 61 are asked for"
    assert got["version"].status == "ok"
    assert "S = 5: 61 running requests reserve 305, leaving 1" in got["state slots"].text
    assert "18,995,200 bytes, a bfloat16 one 9,820,160: --mamba-ssm-dtype bfloat16" in got["state dtype"].text


def test_the_log_of_the_same_boot_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(sglang_log(), encoding="utf-8")
    got = found(observe_log(path), 61)
    assert not off(got)
    assert got["pools"] == found(sglang(), 61)["pools"]
    assert got["version"].status == "note"


def test_fewer_run_than_asked_for_and_the_slots_are_why() -> None:
    got = found(sglang(), 62)["concurrency"]
    assert got.status == "off"
    assert got.text.startswith(
        "61 requests run at once, 62 are asked for: capped by 306 state slots of S = 5"
    )
    assert "--max-mamba-cache-size" in got.text


def test_the_engine_lowered_what_its_own_flag_asks_for() -> None:
    got = found(sglang({"max_running_requests": 100}))["concurrency"]
    assert got.status == "off"
    assert "--max-running-requests asks for 100: capped by 306 state slots" in got.text


def test_the_flag_itself_is_the_cap() -> None:
    got = found(sglang({"max_running_requests": 20}, running=20), 40)
    assert off(got) == {"concurrency"}
    assert got["concurrency"].text.endswith("capped by --max-running-requests; raise it")


def test_few_kv_tokens_are_the_cap() -> None:
    flags: dict[str, object] = {"max_mamba_cache_size": 3715, "max_total_tokens": 100}
    got = found(sglang(flags, slots=3715, tokens=100, running=50), 60)
    assert off(got) == {"concurrency"}
    assert "capped by 100 KV tokens, 2 a request" in got["concurrency"].text


def test_a_dense_model_capped_by_the_engines_estimate() -> None:
    dense = sglang({"model_path": "Qwen3-32B", "tp_size": 8}, slots=None, tokens=1_000_000, running=2048)
    dense = replace(dense, kv_pool_bytes=1_000_001 * 32_768)
    got = found(dense, 5000)
    assert off(got) == {"concurrency"}
    assert "the engine's own estimate from the context length" in got["concurrency"].text
    assert got["pools"].text == "1,000,000 KV tokens of 32,768 bytes, as the flags give"


def test_an_estimate_from_an_unreported_context_is_no_fault() -> None:
    dense: dict[str, object] = {"model_path": "Qwen3-32B", "tp_size": 8}
    # A longer context than the config's, as with rope scaling, lowers the estimate; 2048 is its floor.
    observed = replace(sglang(dense, slots=None, tokens=300_000, running=2048), kv_pool_bytes=None)
    assert found(observed)["pools"].status == "ok"
    assert "flags and pools give" in found(replace(observed, max_running_requests=1024))["pools"].text
    with_context = replace(observed, max_context=40_960)
    assert "2,048 requests run at once, where flags and pools give 3,750" in found(with_context)["pools"].text


def test_ranks_share_the_concurrency() -> None:
    info = sglang_info()
    info["internal_states"] *= 2
    observed = read_server_info(info, "here")
    assert not off(found(observed, 122))
    got = found(observed, 123)["concurrency"]
    assert got.text.startswith("61 requests run at once on each of 2 ranks, 123 are asked for, 62 on a rank")


M = 65.8 * GIB


def solved(**flags: Any) -> tuple[dict[str, object], dict[str, Any]]:
    """Flags and what the engine would make of them, for Ling on 4 ranks."""
    pools = solve_pools(SglangFlags(context_length=131_072, **flags), M, LING_KV, LING_STATE)
    made = {"slots": pools.state_slots, "tokens": pools.kv_tokens, "running": pools.max_running_requests}
    return flags, made


def test_the_default_ratio_is_pointed_out() -> None:
    flags, made = solved(mamba_full_memory_ratio=0.9)
    got = found(sglang(flags, **made))["ratio"]
    assert got.status == "note"
    assert "the default ratio 0.9 gives 47% of the pools to states" in got.text


def test_the_default_ratio_starves_kv_at_a_known_concurrency() -> None:
    flags, made = solved(mamba_full_memory_ratio=0.9)
    got = found(sglang(flags, **made), 61)
    assert off(got) == {"ratio"}
    spare = made["slots"] - 305
    assert f"{spare:,} of {made['slots']:,} slots are beyond what 61 requests reserve" in got["ratio"].text
    assert f"{spare * LING_STATE // LING_KV:,} KV tokens" in got["ratio"].text
    assert got["ratio"].text.endswith("--max-mamba-cache-size 305")
    assert "ratio" not in found(sglang(flags, **made), made["running"])


def test_the_prefix_cache_is_off() -> None:
    flags, made = solved(disable_radix_cache=True, max_running_requests=200)
    got = found(sglang(flags, **made))
    assert off(got) == {"prefix cache"}
    assert got["pools"].status == "ok"


@pytest.mark.parametrize(
    ("version", "status"),
    [("0.5.22", "note"), ("0.5.23+cu130", "ok"), ("v0.5.23", "ok"), ("0.5.23.dev1", "note")],
)
def test_the_release(version: str, status: str) -> None:
    assert found(replace(sglang(), version=version))["version"].status == status


def test_another_model_than_assumed() -> None:
    got = examine(sglang(), price(sglang(), model="Kimi-Linear-48B-A3B"))
    assert any(
        "306 state slots beside 8,038,279 KV tokens, where the flags give" in finding.text for finding in got
    )


def test_other_bytes_than_assumed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(sglang_log(), encoding="utf-8")
    observed = observe_log(path)
    assert observed.kv_pool_bytes is not None
    assert observed.state_pool_bytes is not None
    fp8 = replace(observed, kv_pool_bytes=observed.kv_pool_bytes // 2)
    assert found(fp8)["pools"].text.startswith("a KV token takes 4,032 bytes, Ling-3.0-flash has 8,064")
    closer = replace(observed, kv_pool_bytes=observed.kv_pool_bytes + 3 * observed.rounding_bytes)
    assert off(found(closer)) == {"pools"}
    bf16 = replace(observed, state_pool_bytes=307 * 9_820_160)
    assert found(bf16)["pools"].text.startswith("a state slot takes 9,820,160 bytes")


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"enable_unified_memory": True}, "--enable-unified-memory is not covered"),
        ({"enable_linear_replayssm_spec": True}, "--enable-linear-replayssm-spec is not covered"),
        (
            {"mamba_radix_cache_strategy": "auto"},
            "mamba_radix_cache_strategy is auto, not what it resolved to",
        ),
        ({"page_size": 64, "mamba_radix_cache_strategy": "no_buffer"}, "page_size is 64"),
        ({"speculative_algorithm": "EAGLE", "speculative_num_draft_tokens": 4}, "the draft's layers"),
        ({"pp_size": 2}, "differ between pipeline stages"),
    ],
)
def test_what_the_arithmetic_does_not_cover_is_said(flags: dict[str, object], why: str) -> None:
    got = examine(sglang(flags), price(sglang()))
    pools = next(finding for finding in got if finding.topic == "pools")
    assert pools.status == "note"
    assert why in pools.text


def test_slots_where_the_model_has_no_states() -> None:
    got = found(sglang({"model_path": "Qwen3-32B", "tp_size": 8}))
    assert "the engine has state slots, unlike Qwen3-32B" in got["pools"].text
    assert "has no state slots" in found(sglang(slots=None))["pools"].text


page_sizes = st.sampled_from([1, 16, 64])


@FEW
@given(
    memory=st.floats(8 * GIB, 200 * GIB),
    ratio=st.floats(0.05, 5),
    page=page_sizes,
    strategy=st.sampled_from(["extra_buffer", "extra_buffer_lazy"]),
    slots=st.none() | st.integers(10, 300),
    running=st.none() | st.integers(1, 300),
    state=st.sampled_from([None, "bfloat16"]),
    wrong=st.integers(-40, 40),
)
def test_pools_that_the_engine_makes_agree_and_others_do_not(
    memory: float,
    ratio: float,
    page: int,
    strategy: str,
    slots: int | None,
    running: int | None,
    state: str | None,
    wrong: int,
) -> None:
    flags: dict[str, Any] = {
        "mamba_full_memory_ratio": ratio,
        "page_size": page,
        "mamba_radix_cache_strategy": strategy,
        "max_mamba_cache_size": slots,
        "max_running_requests": running,
    }
    cost = footprint("Ling-3.0-flash", "sglang", 4, state_dtype=state)
    made = solve_pools(SglangFlags(context_length=131_072, **flags), memory, cost.kv_bytes, cost.state_bytes)
    observed = replace(
        sglang({**flags, "mamba_ssm_dtype": state, "context_length": 131_072}),
        state_slots=made.state_slots,
        kv_tokens=made.kv_tokens,
        max_running_requests=made.max_running_requests,
        kv_pool_bytes=round(round((made.kv_tokens + page) * cost.kv_bytes / GIB, 3) * GIB),
    )
    assert found(observed)["pools"].status == "ok"
    if wrong and made.state_slots + wrong > 0:
        # w slots more beside the same tokens are w c more memory, and the ratio gives w r / (1 + r) of them:
        # seen where that falls a whole slot short, with the page that the memory is uncertain by.
        page_slots = page * cost.kv_bytes / cost.state_bytes
        if slots is not None or abs(wrong) / (1 + ratio) > 1 + page_slots:
            changed = replace(observed, state_slots=made.state_slots + wrong)
            texts = [f for f in examine(changed, price(changed)) if f.topic == "pools"]
            assert {finding.status for finding in texts} == {"off"}


# ---------------------------------------------------------------- vLLM


@pytest.fixture
def model(tmp_path: Path) -> str:
    return tiny_model(tmp_path)


MODELS = {"data": [{"id": "tiny", "root": "/models/tiny", "max_model_len": 4096}]}


def vllm(*changes: tuple[str, str]) -> ObservedPools:
    info = VLLM_INFO
    for old, new in changes:
        assert old in info
        info = info.replace(old, new)
    return read_metrics(info, "here", version="0.32.0", models=MODELS)


def test_the_recorded_engine_is_as_its_flags_make_it(model: str) -> None:
    got = found(vllm(), model=model, tp=1)
    assert not off(got)
    assert got["pools"].text == (
        "170 blocks of 384 tokens, 98,304 bytes, as the flags give, with a kernel block of 128"
    )
    assert got["prefix"].text.startswith("shorter than a block of 384 tokens never hits")
    assert "--max-num-seqs is not in /metrics" in got["concurrency"].text
    assert "--mamba-ssm-cache-dtype bfloat16" in got["state dtype"].text


def test_its_log_says_the_same(model: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(VLLM_LOG, encoding="utf-8")
    observed = observe_log(path)
    # The log has no mamba_ssm_cache_dtype, which this build resolved to float32.
    observed = replace(observed, flags={**observed.flags, "mamba_ssm_cache_dtype": "float32"})
    got = found(observed, 4, model=model)
    assert not off(got)
    assert got["concurrency"].text == "4 requests run at once, 4 are asked for"
    got = found(observed, 5, model=model)
    assert got["concurrency"].text.endswith("5 are asked for: capped by --max-num-seqs; raise it")


def test_more_sequences_than_the_blocks_run(model: str) -> None:
    # 169 usable blocks of which a running request holds 1 + 3 * 2
    assert not off(found(replace(vllm(), max_running_requests=24), model=model, tp=1))
    got = found(replace(vllm(), max_running_requests=25), model=model, tp=1)
    assert "--max-num-seqs is 25, the blocks run 24 requests at most" in got["concurrency"].text
    assert off(got) == {"concurrency"}


def test_the_blocks_are_too_few_for_the_concurrency(model: str) -> None:
    got = found(vllm(), 25, model=model, tp=1)
    assert "24 requests run at once, 25 are asked for: capped by the blocks" in got["concurrency"].text
    # 168 blocks would hold 24 requests, but for the null block.
    fewer = found(replace(vllm(), blocks=168), 24, model=model, tp=1)
    assert "23 requests run at once, 24 are asked for" in fewer["concurrency"].text


def test_vllms_prefix_cache_is_off(model: str) -> None:
    observed = vllm(('enable_prefix_caching="True"', 'enable_prefix_caching="False"'))
    got = {finding.topic: finding for finding in examine(observed)}
    assert got["prefix cache"].status == "off"
    assert "prefix" not in got


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (('block_size="384"', 'block_size="400"'), "a block has 400 tokens"),
        (('num_gpu_blocks="170"', 'num_gpu_blocks="171"'), "171 blocks of 16,777,216 bytes"),
        (
            ('kv_cache_size_tokens="40960"', 'kv_cache_size_tokens="40961"'),
            "the KV cache size is 40,961 tokens",
        ),
    ],
)
def test_a_pool_that_the_arithmetic_does_not_give(change: tuple[str, str], text: str, model: str) -> None:
    got = found(vllm(change), model=model, tp=1)
    assert "pools" in off(got)
    assert text in got["pools"].text


def test_an_override_of_the_blocks_is_believed(model: str) -> None:
    changes = [
        ('num_gpu_blocks_override="None"', 'num_gpu_blocks_override="85"'),
        ('num_gpu_blocks="170"', 'num_gpu_blocks="85"'),
        ('kv_cache_size_tokens="40960"', 'kv_cache_size_tokens="20480"'),
    ]
    assert found(vllm(*changes), model=model, tp=1)["pools"].status == "ok"


def test_speculation_is_not_compared(model: str) -> None:
    observed = vllm()
    drafted = replace(observed, flags={**observed.flags, "speculative_config": "SpeculativeConfig"})
    got = found(drafted, model=model, tp=1)
    assert got["pools"] == Finding("note", "pools", "are not compared: the draft's layers are not reported")
    assert "short requests" not in got["concurrency"].text


def test_a_pool_that_is_not_reported(model: str) -> None:
    got = found(replace(vllm(), blocks=None, pool_bytes=None), model=model, tp=1)
    assert "neither blocks nor their memory are reported" in got["pools"].text


def test_the_override_of_a_log_gives_the_blocks(model: str) -> None:
    observed = vllm(('kv_cache_size_tokens="40960"', 'kv_cache_size_tokens="20480"'))
    flags = {**observed.flags, "num_gpu_blocks_override": 85}
    got = found(replace(observed, blocks=None, pool_bytes=None, flags=flags), model=model, tp=1)
    assert got["pools"].text.startswith("85 blocks of 384 tokens")


def test_a_dense_models_blocks_span_all_context_parallel_ranks() -> None:
    flags: dict[str, object] = {"model": "Qwen3-32B", "decode_context_parallel_size": 2}
    observed = replace(vllm(), page_size=128, blocks=None, pool_bytes=None, kv_tokens=None, flags=flags)
    assert "256 tokens" in found(observed, tp=16)["prefix"].text


def test_a_finer_match_unit_is_what_hits_end_on(model: str) -> None:
    observed = vllm(('prefix_match_unit="None"', 'prefix_match_unit="32"'))
    assert "32 tokens" in found(observed, model=model, tp=1)["prefix"].text


@FEW
@given(
    name=st.sampled_from(
        ["Ling-3.0-flash", "Qwen3-Next-80B-A3B", "Qwen3.5-27B", "Falcon-H1-7B", "Qwen3-32B"]
    ),
    gib=st.floats(5, 120),
    longest=st.integers(2_000, 300_000),
    checkpoint=st.booleans(),
)
def test_the_cache_size_of_any_pool_agrees(name: str, gib: float, longest: int, checkpoint: bool) -> None:
    layout = footprint(name, "vllm", 4).layout
    assert layout is not None
    memory = int(gib * GIB)
    blocks = usable_blocks(layout, memory) + 1
    asked = replace(layout, checkpoint_blocks=int(checkpoint and layout.state_groups > 0))
    held = trajectory_blocks(asked, longest, running=True)
    logged = ObservedPools(
        engine="vllm",
        version="0.32.0",
        source="here",
        kv_tokens=int(blocks / held * longest),
        pool_bytes=round(round(memory / GIB, 2) * GIB),
        rounding_bytes=GIB // 200,
        max_context=longest,
        flags={"model": name, "tensor_parallel_size": 4},
    )
    assert found(logged)["pools"].status == "ok"
    exact = replace(logged, pool_bytes=memory, rounding_bytes=0, page_size=layout.block_tokens, blocks=blocks)
    assert found(exact)["pools"].status == "ok"
    assert found(replace(exact, blocks=blocks + 1))["pools"].status == "off"


# ---------------------------------------------------------------- prices


def test_what_the_engine_does_not_report_is_asked_for() -> None:
    with pytest.raises(InputError, match="pass --tp"):
        price(vllm(), model="Qwen3-32B")
    with pytest.raises(InputError, match="pass --model"):
        price(replace(vllm(), flags={}))


def test_a_hub_name_is_found_in_the_catalogue_by_its_last_part() -> None:
    assert price(sglang()).footprint.model == "Ling-3.0-flash"
    with pytest.raises(InputError, match=r"pass --model with one, or with a name of the catalogue$"):
        price(sglang({"model_path": "someone/unheard-of"}))
    with pytest.raises(InputError, match=r"\(the catalogue has Ling-3\.0-flash, "):
        price(sglang({"model_path": "/elsewhere/Ling-3.0-flash-FP8"}))
    with pytest.raises(InputError, match="on this machine; pass --model"):
        price(sglang({"model_path": "x" * 5000}))


def test_the_engines_dtypes_are_priced() -> None:
    flags: dict[str, object] = {"kv_cache_dtype": "fp8_e4m3", "mamba_ssm_dtype": "bfloat16", "dtype": "half"}
    cost = price(sglang(flags))
    assert (cost.footprint.kv_bytes, cost.footprint.state_bytes) == (4032, 9_820_160)
    assert cost.with_bf16_states is None
