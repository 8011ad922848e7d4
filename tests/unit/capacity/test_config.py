"""Reading config.json: what each family may spell in more than one way, and what is refused by name."""

from pathlib import Path
from typing import Any

import pytest
from unit.capacity.model_configs import CONFIGS, config_of, every, write_config

from coresched import footprint
from coresched.capacity.config import MAX_BYTES, parse_architecture, read_architecture
from coresched.errors import InputError


def order_of(config: dict[str, Any]) -> str | None:
    return parse_architecture(config, "c").order


@pytest.mark.parametrize("name", CONFIGS)
def test_every_family_is_read(name: str) -> None:
    read = parse_architecture(CONFIGS[name], "config.json")
    assert read.model_class == CONFIGS[name]["architectures"][0]
    assert read.dtype == "bfloat16"
    assert read.order is not None
    assert read.attention_layers == sum(letter in "AB" for letter in read.order)
    assert read.state_layers == sum(letter in "SB" for letter in read.order)


def test_layer_orders_in_their_spellings() -> None:
    next_ = "Qwen3-Next-80B-A3B"
    by_interval = order_of(config_of(next_))
    assert by_interval == "SSSA" * 12
    assert order_of(config_of(next_, layer_types=every(4, 48), full_attention_interval=...)) == by_interval
    assert order_of(config_of(next_, layer_types=every(4, 48))) == by_interval

    nano = "Nemotron-Nano-9B-v2"
    letters = CONFIGS[nano]["hybrid_override_pattern"]
    words = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
    listed = [words[letter] for letter in letters]
    assert order_of(config_of(nano, layers_block_type=listed, hybrid_override_pattern=...)) == order_of(
        config_of(nano)
    )

    assert order_of(config_of(nano, layers_block_type=listed)) == order_of(config_of(nano))

    tiny = "Ling-3.0-tiny"
    marks = [1, 1, 1, 0] * 6
    assert order_of(config_of(tiny, layer_group_size=marks)) == order_of(config_of(tiny)) == "SSSA" * 6

    lfm = "LFM2-1.2B"
    types = ["full_attention" if i in (2, 5, 8, 10, 12, 14) else "conv" for i in range(16)]
    assert order_of(config_of(lfm, layer_types=types, full_attn_idxs=...)) == order_of(config_of(lfm))

    # transformers renamed the types: mamba is linear_attention, attention is full_attention
    granite = "Granite-4.0-H-1B"
    new = [{"mamba": "linear_attention"}.get(t, "full_attention") for t in CONFIGS[granite]["layer_types"]]
    assert order_of(config_of(granite, layer_types=new)) == order_of(config_of(granite))

    minimax = config_of("MiniMax-M1", attn_type_list=..., layer_types=every(8, 80))
    assert order_of(minimax) == order_of(config_of("MiniMax-M1")) == "SSSSSSSA" * 10

    mixtral = config_of("Llama-3.1-8B", architectures=["MixtralForCausalLM"])
    qwen2 = config_of("Llama-3.1-8B", architectures=["Qwen2ForCausalLM"], sliding_window=4096)
    assert order_of(mixtral) == order_of(qwen2) == "A" * 32
    assert order_of(config_of("Bamba-9B")) == "S" * 9 + "A" + "S" * 8 + "A" + "S" * 8 + "A" + "S" * 4
    assert order_of(config_of("Jamba-1.5-Mini")) == "SSSSASSS" * 4
    assert order_of(config_of("Falcon-H1-0.5B")) == "B" * 36


def test_dimensions_in_their_spellings() -> None:
    def same(name: str, **changes: Any) -> bool:
        plain, changed = (
            parse_architecture(CONFIGS[name], "c"),
            parse_architecture(config_of(name, **changes), "c"),
        )
        return (plain.attention, plain.state) == (changed.attention, changed.state)

    assert same("Nemotron-Nano-9B-v2", n_groups=..., mamba_n_groups=8, conv_kernel=..., mamba_d_conv=4)
    assert same("Nemotron-Nano-9B-v2", head_dim=..., attention_head_dim=128)
    assert same("Granite-4.0-H-1B", mamba_d_head="auto")
    assert same("Granite-4.0-H-1B", head_dim=128)
    assert same("Falcon-H1-0.5B", mamba_d_ssm=None, mamba_expand=1.5)
    assert same("Falcon-Mamba-7B", intermediate_size=..., expand=2)
    assert same("Llama-3.1-8B", head_dim=None)
    assert same("Zamba2-7B", attention_head_dim=..., mamba_headdim=...)
    assert (
        parse_architecture(config_of("Llama-3.1-8B", num_key_value_heads=None), "c").attention.kv_heads == 32
    )


def test_a_text_model_nested_or_flat_is_the_same() -> None:
    nested = CONFIGS["Qwen3.5-27B"]
    flat = nested["text_config"] | {"architectures": ["Qwen3_5ForCausalLM"]}
    one, two = parse_architecture(nested, "c"), parse_architecture(flat, "c")
    assert (one.attention, one.state, one.order, one.dtype) == (
        two.attention,
        two.state,
        two.order,
        two.dtype,
    )
    assert one.mtp_layers == two.mtp_layers == 1
    assert one.max_context == 262144


def test_layers_without_a_state_make_a_dense_model() -> None:
    granite = config_of("Granite-4.0-H-1B", layer_types=["attention"] * 40)
    assert parse_architecture(granite, "c").state.kind == "none"


def test_mistral_has_a_window_unless_it_is_null(tmp_path: Path) -> None:
    mistral = config_of("Llama-3.1-8B", architectures=["MistralForCausalLM"])
    with pytest.raises(InputError, match="sliding_window is missing; a window is not priced"):
        parse_architecture(mistral, "c")
    assert parse_architecture(mistral | {"sliding_window": None}, "c").order == "A" * 32


def test_a_dtype_that_is_nowhere_can_be_passed(tmp_path: Path) -> None:
    path = write_config(tmp_path, config_of("Llama-3.1-8B", torch_dtype=...))
    with pytest.raises(InputError, match="neither dtype nor torch_dtype is given; add one, or pass dtype"):
        footprint(path, "vllm")
    assert footprint(path, "vllm", dtype="bfloat16").kv_bytes == 131_072


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}},
        {"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "FP8"}},
    ],
)
def test_a_quantised_kv_cache_must_be_named(quantization: dict[str, Any], tmp_path: Path) -> None:
    path = write_config(tmp_path, config_of("Llama-3.1-8B", quantization_config=quantization))
    with pytest.raises(InputError, match="quantization_config sets a KV cache format; pass kv_dtype"):
        footprint(path, "sglang")
    assert footprint(path, "sglang", kv_dtype="fp8_e4m3").kv_bytes == 65_536
    plain = config_of("Llama-3.1-8B", quantization_config={"quant_method": "fp8", "kv_cache_scheme": None})
    assert footprint(write_config(tmp_path, plain), "sglang").kv_bytes == 131_072


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe{}", "is not JSON"),
        (b"[]", r"holds \[\]; give a config.json with one object"),
        (b"null", "holds null"),
        (b"[" * 100_000, "is not JSON"),
        (
            b'{"architectures": ["LlamaForCausalLM"], "hidden_size": 1' + b"0" * 5000 + b"}",
            "is not JSON|hidden_size is",
        ),
        (b" " * (MAX_BYTES + 1), "is larger than 16 MiB"),
    ],
)
def test_files_that_are_no_config(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_architecture(file)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json: cannot be read \(No such file"):
        read_architecture(tmp_path)
    with pytest.raises(InputError, match=r"is a folder without a config\.json"):
        footprint(tmp_path, "sglang")


def test_a_byte_order_mark_and_a_strange_file_name_do_no_harm(tmp_path: Path) -> None:
    folder = tmp_path / "a\nb"
    folder.mkdir()
    file = folder / "config.json"
    file.write_bytes(b"\xef\xbb\xbf" + b"{}")
    with pytest.raises(InputError, match=r"a\\nb/config.json.*architectures is missing") as caught:
        read_architecture(file)
    assert "\n" not in str(caught.value)
