"""What the options of footprint do, and which splits are refused."""

from pathlib import Path
from typing import Any

import pytest
from unit.capacity.model_configs import config_of, write_config

from coresched import footprint
from coresched.capacity.sharding import pipeline_stages
from coresched.errors import InputError

FLASH = "Ling-3.0-flash"


def test_a_footprint_says_how_it_came_about() -> None:
    fp = footprint(model="Qwen3-Next-80B-A3B", engine="vllm", tp=4)
    assert (fp.engine, fp.engine_version, fp.model_class) == ("vllm", "0.32.0", "Qwen3NextForCausalLM")
    assert (fp.attention_layers, fp.state_layers) == (12, 36)
    assert (fp.kv_layer_bytes, fp.state_layer_bytes) == (1_024, 274_432)
    assert (fp.kv_dtype, fp.conv_dtype, fp.state_dtype) == ("bfloat16", "bfloat16", "bfloat16")
    assert "KV heads replicated: tp 4 > 2 heads" in fp.notes
    assert "a state fills 274,432 of its page's 278,528 bytes, 1.5% are added" in fp.notes


def test_a_class_that_the_engine_does_not_serve_is_priced_and_noted() -> None:
    fp = footprint("Zamba2-7B", "sglang", 4)
    assert not fp.served
    assert fp.notes[0].startswith("SGLang 0.5.23 does not serve Zamba2ForCausalLM")
    assert "SGLang refuses tp 4 with 2 Mamba groups when it loads the model" in fp.notes


def test_path_folder_and_text_are_the_same_model(tmp_path: Path) -> None:
    file = write_config(tmp_path, config_of("LFM2-1.2B"))
    one, two, three = (footprint(model, "sglang") for model in (file, tmp_path, str(file)))
    assert one == two == three


def test_a_catalogue_name_wins_over_a_folder_without_a_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(FLASH).mkdir()
    assert footprint(FLASH, "sglang").model == FLASH
    write_config(Path(FLASH), config_of("LFM2-1.2B"))
    assert footprint(FLASH, "sglang").model_class == "Lfm2ForCausalLM"


def test_kv_dtype_scales_kv_only() -> None:
    plain, half = footprint(FLASH, "sglang", 4), footprint(FLASH, "sglang", 4, kv_dtype="fp8_e4m3")
    assert (half.kv_bytes, half.state_bytes) == (4_032, plain.state_bytes)
    # vLLM: half the bytes a token double the tokens of a block, whose page must still take the state
    layout = footprint(FLASH, "vllm", 4, kv_dtype="fp8").layout
    assert layout is not None
    assert (layout.block_tokens, layout.page_bytes) == (1_024, 589_824)


def test_sglang_state_dtypes_by_class_and_option(tmp_path: Path) -> None:
    # conv 9,216 and recurrent 131,072 elements in each of 35 layers
    assert footprint(FLASH, "sglang", 4, state_dtype="bfloat16").state_bytes == 9_820_160
    assert footprint(FLASH, "sglang", 4, conv_dtype="float32").state_bytes == 35 * (9_216 + 131_072) * 4
    ling = write_config(tmp_path, config_of("Ling-3.0-tiny", mamba_ssm_dtype="bfloat16"))
    assert footprint(ling, "sglang").state_dtype == "float32"  # Bailing's class does not pass it
    qwen = write_config(tmp_path, config_of("Qwen3-Next-80B-A3B", mamba_ssm_dtype="bfloat16"))
    assert footprint(qwen, "sglang").state_dtype == "bfloat16"


def test_vllm_state_dtypes_by_class_and_option(tmp_path: Path) -> None:
    def dtype(name: str, changes: dict[str, Any], **options: Any) -> str:
        return footprint(write_config(tmp_path, config_of(name, **changes)), "vllm", **options).state_dtype

    assert dtype("Qwen3-Next-80B-A3B", {"mamba_ssm_dtype": "float32"}) == "bfloat16"
    assert dtype("Qwen3-Next-80B-A3B", {}, state_dtype="float32") == "float32"
    assert dtype("Nemotron-Nano-9B-v2", {"mamba_ssm_cache_dtype": ...}) == "float32"
    assert dtype("Nemotron-Nano-9B-v2", {"mamba_ssm_cache_dtype": "bfloat16"}) == "bfloat16"
    assert dtype("Granite-4.0-H-1B", {"torch_dtype": "float16"}) == "float16"
    assert dtype("Granite-4.0-H-1B", {}, conv_dtype="float32") == "float32"
    assert dtype("Kimi-Linear-48B-A3B", {}) == "float32"
    assert dtype("Kimi-Linear-48B-A3B", {}, state_dtype="bfloat16") == "bfloat16"
    assert dtype("Ling-3.0-tiny", {}, state_dtype="bfloat16") == "float32"
    with pytest.raises(InputError, match="state_dtype is float16; for KimiLinearForCausalLM vLLM takes"):
        dtype("Kimi-Linear-48B-A3B", {}, state_dtype="float16")


def test_a_state_dtype_that_vllm_ignores_is_noted() -> None:
    notes = footprint(FLASH, "vllm", 4, state_dtype="bfloat16").notes
    assert "vLLM ignores a state dtype for BailingMoeV3ForCausalLM: float32 is used, not bfloat16" in notes
    assert not any("ignores" in note for note in footprint(FLASH, "vllm", 4, state_dtype="float32").notes)


def test_float32_checkpoints_are_served_in_16_bits(tmp_path: Path) -> None:
    path = write_config(tmp_path, config_of("Llama-3.1-8B", torch_dtype="float32"))
    assert footprint(path, "sglang").kv_dtype == "float16"
    assert footprint(path, "vllm").kv_dtype == "bfloat16"
    assert footprint(path, "vllm", dtype="float32").kv_bytes == 2 * 131_072


def test_mla_drops_the_rope_half_on_sglang_where_the_checkpoint_has_none(tmp_path: Path) -> None:
    path = write_config(tmp_path, config_of("Ling-3.0-tiny", use_mla_nope=True))
    assert footprint(path, "sglang").kv_layer_bytes == 512 * 2
    assert footprint(path, "vllm").kv_layer_bytes == 576 * 2


def test_attention_data_parallelism_divides_the_tp_of_attention() -> None:
    assert footprint("Qwen3.5-27B", "sglang", 8, attention_dp=4).kv_bytes == 32_768
    whole, part = footprint("Qwen3.5-27B", "sglang", 2), footprint("Qwen3.5-27B", "sglang", 8, attention_dp=4)
    assert whole.state_bytes == part.state_bytes
    with pytest.raises(InputError, match="attention_dp is 3; it must divide tp, 8"):
        footprint("Qwen3.5-27B", "sglang", 8, attention_dp=3)
    with pytest.raises(InputError, match=r"attention_dp is 2; vLLM's replicas have tp ranks each"):
        footprint("Qwen3.5-27B", "vllm", 8, attention_dp=2)


def test_decode_context_parallelism() -> None:
    # MLA: the latent is as wide, a rank holds every n-th token
    assert footprint(FLASH, "sglang", 4, dcp=4).kv_bytes == 8_064
    assert "a rank holds one token in 4, and every state" in footprint(FLASH, "sglang", 4, dcp=4).notes
    # SGLang cuts the KV heads into tp / dcp shares: 4 heads over 8 / 4 = 2 leave 2 a rank
    assert footprint("Qwen3.5-27B", "sglang", 8, dcp=4).kv_bytes == 16 * 2 * 2 * 256 * 2
    layout = footprint("Qwen3.5-35B-A3B", "vllm", 8, dcp=4).layout
    assert layout is not None
    assert (layout.block_tokens, layout.block_span_tokens) == (272, 1_088)
    with pytest.raises(InputError, match="dcp is 3; it must divide the tp of attention, 8"):
        footprint(FLASH, "sglang", 8, dcp=3)
    with pytest.raises(InputError, match=r"dcp is 2; vLLM takes up to tp / KV heads of Qwen3\.5-27B, 4 / 4"):
        footprint("Qwen3.5-27B", "vllm", 4, dcp=2)


def test_decode_context_parallelism_that_does_not_fit(tmp_path: Path) -> None:
    mamba = write_config(tmp_path, config_of("Falcon-Mamba-7B"))
    with pytest.raises(InputError, match=r"dcp is 2; .* has no attention to split; it must be 1"):
        footprint(mamba, "sglang", 2, dcp=2)
    # 15 query heads a KV head: dcp 2 would cut them unevenly
    llama = write_config(
        tmp_path, config_of("Llama-3.1-8B", num_attention_heads=60, num_key_value_heads=4, head_dim=64)
    )
    with pytest.raises(InputError, match="dcp is 2; it must divide the 15 queries a KV head"):
        footprint(llama, "vllm", 12, dcp=2)


def test_draft_layers_join_the_kv_cell() -> None:
    assert footprint(FLASH, "sglang", 4, mtp=True).kv_bytes == 9_216
    assert footprint(FLASH, "sglang", 4, draft_layers=2).kv_bytes == 8_064 + 2 * 1_152
    # vLLM: 8 attention layers make groups of 8, so 35 states take 5 blocks of 8 pages of 589,824
    fp = footprint(FLASH, "vllm", 4, mtp=True)
    assert (fp.kv_bytes, fp.state_bytes, fp.draft_layers) == (9_216, 5 * 8 * 589_824, 1)
    with pytest.raises(InputError, match="draft_layers is 1 and mtp is set"):
        footprint(FLASH, "vllm", 4, mtp=True, draft_layers=1)


def test_prediction_layers_with_another_cache_are_refused(tmp_path: Path) -> None:
    config = config_of("Ling-3.0-tiny", num_nextn_predict_layers=1, mtp_use_kda=True)
    with pytest.raises(InputError, match="mtp_use_kda is true; prediction layers with KDA are not priced"):
        footprint(write_config(tmp_path, config), "sglang")


@pytest.mark.parametrize(
    ("name", "channels"),
    [
        ("Ling-3.0-tiny", 3 * 2_048),
        ("Qwen3.5-27B", 6_144 + 2 * 2_048),
        ("Granite-4.0-H-1B", 3_072 + 256),
        ("Jamba-1.5-Mini", 0),
        ("LFM2-1.2B", 0),
        ("BailingMoeV2_5", 0),
    ],
)
def test_draft_tokens_widen_conv_states_on_vllm_only(name: str, channels: int, tmp_path: Path) -> None:
    path = write_config(tmp_path, config_of(name))
    plain, wide = footprint(path, "vllm"), footprint(path, "vllm", draft_tokens=4)
    assert wide.state_layer_bytes - plain.state_layer_bytes == 4 * channels * 2
    assert footprint(path, "sglang", draft_tokens=4).state_bytes == footprint(path, "sglang").state_bytes


def test_pipeline_stages_as_each_engine_deals_them() -> None:
    assert pipeline_stages("sglang", 7, 3) == [0, 0, 1, 1, 2, 2, 2]
    assert pipeline_stages("vllm", 7, 3) == [0, 0, 1, 1, 1, 2, 2]
    assert pipeline_stages("vllm", 8, 3) == [0, 0, 0, 1, 1, 1, 2, 2]
    with pytest.raises(InputError, match="pp is 3; there are only 2 layers"):
        pipeline_stages("sglang", 2, 3)


def test_pipeline_parallelism_prices_the_most_loaded_stage() -> None:
    # 42 layers in 4 stages: SGLang 10, 10, 11, 11 (attention 1, 2, 2, 2; states 9, 8, 9, 9). It scales the
    # 35 layers' bytes by 9 / 35 in floating point and cuts, which loses one byte of 9 x 542,720.
    fp = footprint(FLASH, "sglang", 4, pp=4)
    assert (fp.kv_bytes, fp.state_bytes) == (2 * 1_152, 9 * 542_720 - 1)
    assert (fp.attention_layers, fp.state_layers) == (7, 35)
    # vLLM 10, 11, 11, 10. The groups are dealt over the whole model, the 5 of states by every fifth layer:
    # a stage has at most 2 layers of one group.
    layout = footprint(FLASH, "vllm", 4, pp=4).layout
    assert layout is not None
    assert (layout.attention_groups, layout.state_groups, layout.bytes_per_block) == (1, 5, 2 * 589_824)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "trt"}, 'engine is "trt"; it must be sglang or vllm'),
        ({"tp": 0}, "tp is 0; it must be an integer from 1 to 4,096"),
        ({"tp": "4"}, 'tp is "4"; it must be an integer'),
        ({"tp": True}, "tp is true; it must be an integer"),
        ({"tp": 4.0}, r"tp is 4\.0; it must be an integer"),
        ({"pp": -1}, "pp is -1; it must be an integer"),
        ({"draft_tokens": 10**9}, "draft_tokens is 1000000000; it must be an integer from 0 to 1,024"),
        ({"mtp": 1}, "mtp is 1; it must be true or false"),
        ({"kv_dtype": "fp4"}, 'kv_dtype is "fp4"; it must be one of bf16, bfloat16, fp8_e4m3, fp8_e5m2'),
        ({"state_dtype": "fp8"}, 'state_dtype is "fp8"; it must be one of float32, bfloat16, float16'),
        ({"conv_dtype": 16}, "conv_dtype is 16; it must be one of"),
        ({"dtype": "int8"}, 'dtype is "int8"; it must be one of'),
        ({"model": ""}, 'model is ""; give a config.json or a name'),
        ({"model": 7}, "model is 7; give a config.json or a name"),
        ({"model": "x" * 5000}, "is neither a config.json"),
        ({"model": "a\0b"}, "is neither a config.json"),
        (
            {"tp": 3},
            "tp is 3; it must divide the 32 attention heads of Ling-3.0-flash; use 1, 2, 4, 8, 16, 32",
        ),
    ],
)
def test_options_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        footprint(**{"model": FLASH, "engine": "sglang", **options})


@pytest.mark.parametrize(
    ("name", "tp", "message"),
    [
        ("Qwen3.5-27B", 16, "tp is 16; it must divide the 24 attention heads"),
        ("Qwen3-Next-80B-A3B", 6, "tp is 6; it must divide the 16 attention heads"),
        ("Falcon-H1-0.5B", 16, "tp is 16; it must divide the 8 attention heads"),
        ("Nemotron-Nano-9B-v2", 5, "tp is 5; it must divide the 8 KV heads"),
        ("Nemotron-Nano-9B-v2", 10, "tp is 10; it must divide the 8 KV heads .* or be a multiple"),
        ("Granite-4.0-H-1B", 3, "tp is 3; it must divide the 4 KV heads"),
        ("Granite-4.0-H-1B", 12, None),
        ("Mamba-Codestral-7B", 128, None),
        ("Falcon-Mamba-7B", 3, "tp is 3; it must divide the 8,192 channels"),
        ("Mamba-Codestral-7B", 3, "tp is 3; it must divide the 128 state heads"),
        ("Mamba-Codestral-7B", 16, None),
        ("LFM2-1.2B", 5, "tp is 5; it must divide the 32 attention heads"),
    ],
)
def test_a_tp_that_does_not_divide(name: str, tp: int, message: str | None, tmp_path: Path) -> None:
    path = write_config(tmp_path, config_of(name))
    for engine in ("sglang", "vllm"):
        if message is None:
            assert footprint(path, engine, tp).state_bytes > 0
            continue
        with pytest.raises(InputError, match=message):
            footprint(path, engine, tp)


def test_mamba_groups_that_can_be_neither_cut_nor_replicated(tmp_path: Path) -> None:
    # 96 heads in 12 groups over 8 ranks: neither 12 / 8 nor 8 / 12 is whole
    config = config_of("Mamba-Codestral-7B", num_heads=96, n_groups=12, hidden_size=3072)
    with pytest.raises(InputError, match=r"tp is 8; it must divide the 12 Mamba groups .* or be a multiple"):
        footprint(write_config(tmp_path, config), "sglang", 8)
