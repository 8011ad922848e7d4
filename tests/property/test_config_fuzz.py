"""Fuzzed config.json of every family: the number of a plain twin of the closed forms, or an InputError."""

import copy
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.capacity.model_configs import CONFIGS

from coresched import footprint
from coresched.capacity.footprint import Footprint
from coresched.errors import InputError

Config = dict[str, Any]

KV_BYTES = {"bfloat16": 2, "float16": 2, "float32": 2}
SSM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


def ceil(value: int, unit: int) -> int:
    return -(-value // unit)


class Twin:
    """One model's cache by the closed forms, read straight from the config's text part."""

    def __init__(self, config: Config) -> None:
        self.kind = config["architectures"][0]
        self.root = config
        self.text: Config = config.get("text_config") or config
        self.layers: int = self.text["num_hidden_layers"]

    def attention_layers(self) -> list[bool]:
        """Whether each layer is attention."""
        c, n = self.text, self.layers
        if "Bailing" in self.kind:
            size = c["layer_group_size"]
            return (
                [m != 1 for m in size] if isinstance(size, list) else [(i + 1) % size == 0 for i in range(n)]
            )
        if "Kimi" in self.kind:
            return [i + 1 in c["linear_attn_config"]["full_attn_layers"] for i in range(n)]
        if "Nemotron" in self.kind:
            return [letter == "*" for letter in c["hybrid_override_pattern"]]
        if "Jamba" in self.kind:
            return [i % c["attn_layer_period"] == c["attn_layer_offset"] for i in range(n)]
        if "MiniMax" in self.kind:
            return [mark == 1 for mark in c["attn_type_list"]]
        if self.kind == "BambaForCausalLM" or c.get("full_attn_idxs") is not None:
            return [i in (c.get("attn_layer_indices") or c.get("full_attn_idxs")) for i in range(n)]
        if c.get("layer_types") or c.get("layers_block_type"):
            names = c.get("layer_types") or c["layers_block_type"]
            return [name in ("attention", "full_attention", "hybrid") for name in names]
        if c.get("full_attention_interval"):
            return [(i + 1) % c["full_attention_interval"] == 0 for i in range(n)]
        return [self.kind not in ("FalconMambaForCausalLM", "Mamba2ForCausalLM")] * n

    def state_count(self) -> int:
        if self.kind in ("FalconH1ForCausalLM", "Zamba2ForCausalLM"):
            return self.layers
        if "Nemotron" in self.kind:
            return self.text["hybrid_override_pattern"].count("M")
        if self.kind in ("LlamaForCausalLM", "Qwen3ForCausalLM", "DeepseekV3ForCausalLM"):
            return 0
        return self.layers - sum(self.attention_layers())

    def kv_layer(self, engine: str, tp: int) -> int:
        """Elements of one token in one layer."""
        c = self.text
        if "FalconMamba" in self.kind or "Mamba2" in self.kind:
            return 0
        if "Bailing" in self.kind or "Kimi" in self.kind or "Deepseek" in self.kind:
            dropped = engine == "sglang" and c.get("use_mla_nope")
            return c["kv_lora_rank"] + (0 if dropped else c["qk_rope_head_dim"])
        heads = c["num_key_value_heads"] or c["num_attention_heads"]
        if self.kind == "Zamba2ForCausalLM":
            width = 2 * c["hidden_size"] // c["num_attention_heads"]
        else:
            width = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
        return 2 * max(1, heads // tp) * width

    def state_layer(self, tp: int) -> tuple[int, int]:
        """Conv and recurrent elements of one state in one layer."""
        c = self.text
        if "Lfm2" in self.kind:
            return c["hidden_size"] // tp * (c["conv_L_cache"] - 1), 0
        if "V2_5" in self.kind or "MiniMax" in self.kind:
            return 0, c["num_attention_heads"] // tp * c["head_dim"] ** 2
        if "Bailing" in self.kind or "Kimi" in self.kind:
            linear = c.get("linear_attn_config") or {"num_heads": c["num_attention_heads"], **c}
            width = linear["num_heads"] // tp * linear["head_dim"]
            return 3 * width * (linear["short_conv_kernel_size"] - 1), width * linear["head_dim"]
        if "Qwen3" in self.kind:
            k, v = c["linear_num_key_heads"] // tp, c["linear_num_value_heads"] // tp
            dk, dv = c["linear_key_head_dim"], c["linear_value_head_dim"]
            return (2 * k * dk + v * dv) * (c["linear_conv_kernel_dim"] - 1), v * dk * dv
        if "Jamba" in self.kind:
            inner = int(c["mamba_expand"] * c["hidden_size"]) // tp
            return inner * (c["mamba_d_conv"] - 1), inner * c["mamba_d_state"]
        if "FalconMamba" in self.kind:
            inner = (c.get("intermediate_size") or int(c["expand"] * c["hidden_size"])) // tp
            return inner * (c["conv_kernel"] - 1), inner * c["state_size"]
        return self.mamba2(tp)

    def mamba2(self, tp: int) -> tuple[int, int]:
        c = self.text
        names = {
            "NemotronHForCausalLM": ("mamba_num_heads", "n_groups", "ssm_state_size", "conv_kernel"),
            "Zamba2ForCausalLM": ("n_mamba_heads", "mamba_ngroups", "mamba_d_state", "mamba_d_conv"),
            "Mamba2ForCausalLM": ("num_heads", "n_groups", "state_size", "conv_kernel"),
        }.get(self.kind, ("mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_conv"))
        heads, groups, size, kernel = (c[name] for name in names)
        if "Nemotron" in self.kind:
            inner = heads * c["mamba_head_dim"]
        elif self.kind == "FalconH1ForCausalLM" and c["mamba_d_ssm"] is not None:
            inner = c["mamba_d_ssm"]
        else:
            inner = int(c[next(name for name in ("mamba_expand", "expand") if name in c)] * c["hidden_size"])
        channels = (
            (inner + 2 * max(groups, tp) * size) // tp if groups % tp else (inner + 2 * groups * size) // tp
        )
        return channels * (kernel - 1), heads // tp * (inner // heads) * size

    def ssm_dtype(self, engine: str, model: str) -> str:
        c, kind = self.text, self.kind
        passes = kind.startswith(("Qwen3Next", "Qwen3_5", "Nemotron", "FalconH1", "Lfm2For"))
        if engine == "sglang":
            return (passes and c.get("mamba_ssm_dtype")) or "float32"
        if "Nemotron" in kind:
            return c.get("mamba_ssm_cache_dtype") or "float32"
        if "Kimi" in kind or "MoeV3" in kind:
            return "float32"
        return ("Qwen3_5" in kind and c.get("mamba_ssm_dtype")) or model

    def bytes(self, engine: str, tp: int) -> tuple[int, int]:
        """Of a KV token and of a state."""
        c = self.root
        dtype = next(d for d in (c.get("dtype"), c.get("torch_dtype"), self.text.get("dtype")) if d)
        model = {"float32": "float16" if engine == "sglang" else "bfloat16"}.get(dtype, dtype)
        attention, state = sum(self.attention_layers()), self.state_count()
        p = self.kv_layer(engine, tp) * 2
        conv, ssm = self.state_layer(tp) if state else (0, 0)
        s = conv * 2 + ssm * SSM_BYTES[self.ssm_dtype(engine, model)]
        if engine == "sglang":
            return attention * p, state * s
        if not state or not attention:
            return attention * p, state * s
        mla = "kv_lora_rank" in self.text
        unit = 128 if mla else 16
        block = max(16, unit * ceil(s, unit * p)) if s else 16
        low, high = sorted((attention, state))
        group = high if high < 1.5 * low else low
        per_block = group * block * p
        return ceil(attention, group) * per_block // block, ceil(state, group) * per_block


def spots(config: Config, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a value can be changed: every field, and every field of the objects inside."""
    for field, value in config.items():
        yield (*path, field)
        if isinstance(value, dict):
            yield from spots(value, (*path, field))


WRONG = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 200),
    st.sampled_from([0, 1, 2, 3, 8, 64, 10**9, 10**40, -1, 4.0, 1.5, float("nan"), float("inf")]),
    st.sampled_from(["", "4", "auto", "float32", "float16", "bfloat16", "mamba", "\ud800"]),
    st.lists(st.one_of(st.integers(-1, 30), st.sampled_from(["mamba", "attention", "conv"])), max_size=30),
    st.dictionaries(st.sampled_from(["num_heads", "dtype", "x"]), st.integers(-1, 9), max_size=2),
)


def priced(config: Any, engine: str, tp: int) -> Footprint | None:
    """The footprint, or None where it is refused in one sentence that names the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        try:
            return footprint(path, engine, tp)
        except InputError as refusal:
            text = str(refusal)
            assert "\n" not in text
            assert str(path) in text
            assert ";" in text
            assert len(text) < 3_000
            return None


@pytest.mark.parametrize("name", CONFIGS)
def test_the_twin_agrees_on_the_configs_as_they_are(name: str) -> None:
    for engine in ("sglang", "vllm"):
        for tp in (1, 2, 4):
            fp = priced(CONFIGS[name], engine, tp)
            assert fp is not None
            assert (fp.kv_bytes, fp.state_bytes) == Twin(CONFIGS[name]).bytes(engine, tp)


@given(data=st.data())
@settings(max_examples=800, deadline=None)
def test_changed_configs_give_the_right_number_or_a_refusal(data: st.DataObject) -> None:
    config = copy.deepcopy(CONFIGS[data.draw(st.sampled_from(sorted(CONFIGS)))])
    for _ in range(data.draw(st.integers(1, 2))):
        places = list(spots(config))
        *outer, field = data.draw(st.sampled_from(places))
        holder = config
        for step in outer:
            holder = holder[step]
        if data.draw(st.booleans()):
            del holder[field]
        else:
            holder[field] = data.draw(WRONG)
    engine, tp = data.draw(st.sampled_from(["sglang", "vllm"])), data.draw(st.sampled_from([1, 2, 3, 4, 8]))
    fp = priced(config, engine, tp)
    if fp is not None:
        assert (fp.kv_bytes, fp.state_bytes) == Twin(config).bytes(engine, tp)


@given(data=st.data())
@settings(max_examples=400, deadline=None)
def test_scaled_dimensions_give_the_right_number_or_a_refusal(data: st.DataObject) -> None:
    config = copy.deepcopy(CONFIGS[data.draw(st.sampled_from(sorted(CONFIGS)))])
    text = config.get("text_config") or config
    for field in [name for name, value in text.items() if isinstance(value, int) and value > 1]:
        if field != "num_hidden_layers" and data.draw(st.integers(0, 4)) == 0:
            text[field] = max(
                1, text[field] * data.draw(st.sampled_from([1, 2, 3, 8])) // data.draw(st.integers(1, 2))
            )
    engine, tp = data.draw(st.sampled_from(["sglang", "vllm"])), data.draw(st.sampled_from([1, 2, 4, 8, 16]))
    fp = priced(config, engine, tp)
    if fp is not None:
        assert (fp.kv_bytes, fp.state_bytes) == Twin(config).bytes(engine, tp)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(config=JSON, engine=st.sampled_from(["sglang", "vllm"]))
@settings(max_examples=200, deadline=None)
def test_any_json_is_refused(config: Any, engine: str) -> None:
    assert priced(config, engine, 1) is None


@given(content=st.binary(max_size=64))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_bytes(content)
        with pytest.raises(InputError):
            footprint(path, "vllm")
