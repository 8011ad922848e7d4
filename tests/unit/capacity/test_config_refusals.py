"""Fields that decide a cache, missing, of the wrong type or at odds with others, are refused by name."""

from pathlib import Path
from typing import Any

import pytest
from unit.capacity.model_configs import config_of, every, write_config

from coresched import footprint
from coresched.errors import InputError

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (
        "Nemotron-Nano-9B-v2",
        {"layers_block_type": ["mamba"] * 56},
        "hybrid_override_pattern .*; layers_block_type says otherwise",
    ),
    (
        "Granite-4.0-H-1B",
        {"mamba_d_head": "auto", "mamba_n_heads": 47},
        "mamba_n_heads is 47; it must divide",
    ),
    (
        "Llama-3.1-8B",
        {"architectures": ["GptOssForCausalLM"]},
        'architectures is \\["GptOssForCausalLM"\\]; unknown class',
    ),
    (
        "Llama-3.1-8B",
        {"architectures": ...},
        "architectures is missing; give an array with the one model class",
    ),
    ("Llama-3.1-8B", {"architectures": []}, "architectures is \\[\\]; give"),
    ("Llama-3.1-8B", {"architectures": "LlamaForCausalLM"}, 'architectures is "LlamaForCausalLM"; give'),
    (
        "Llama-3.1-8B",
        {"num_hidden_layers": ...},
        "num_hidden_layers is missing; give an integer from 1 to 10,000",
    ),
    ("Llama-3.1-8B", {"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000; give an integer"),
    ("Llama-3.1-8B", {"num_attention_heads": "32"}, 'num_attention_heads is "32"; give an integer'),
    ("Llama-3.1-8B", {"num_attention_heads": None}, "num_attention_heads is null; give an integer"),
    ("Llama-3.1-8B", {"num_attention_heads": True}, "num_attention_heads is true; give an integer"),
    ("Llama-3.1-8B", {"num_attention_heads": 32.0}, "num_attention_heads is 32.0; give an integer"),
    ("Llama-3.1-8B", {"num_attention_heads": -32}, "num_attention_heads is -32; give an integer"),
    ("Llama-3.1-8B", {"hidden_size": 10**30}, "hidden_size is 10+; give an integer"),
    (
        "Llama-3.1-8B",
        {"hidden_size": 4097},
        "hidden_size is 4097; it must be a multiple of num_attention_heads, 32",
    ),
    ("Llama-3.1-8B", {"num_key_value_heads": ...}, "num_key_value_heads is missing; give it"),
    (
        "Llama-3.1-8B",
        {"num_key_value_heads": 5},
        "num_key_value_heads is 5; it must divide num_attention_heads, 32",
    ),
    ("Llama-3.1-8B", {"sliding_window": 4096}, "sliding_window is 4096; a window is not priced"),
    ("Llama-3.1-8B", {"v_head_dim": 64}, "v_head_dim is 64; values of another width than keys, 128"),
    ("Llama-3.1-8B", {"torch_dtype": "int8"}, 'torch_dtype is "int8"; give bfloat16'),
    ("Llama-3.1-8B", {"dtype": "float16"}, 'torch_dtype is "bfloat16"; dtype is "float16"; keep one of them'),
    (
        "Llama-3.1-8B",
        {"max_position_embeddings": "128k"},
        'max_position_embeddings is "128k"; give an integer',
    ),
    ("Qwen3-32B", {"head_dim": ...}, "head_dim is missing; give an integer"),
    (
        "Qwen3-32B",
        {"use_sliding_window": True, "sliding_window": 4096},
        "sliding_window is 4096; a window is not",
    ),
    (
        "Qwen3-32B",
        {"layer_types": ["sliding_attention"] * 64},
        'layer_types .* layer 0 is of unknown type "sliding',
    ),
    (
        "DeepSeek-V3",
        {"index_topk": 2048},
        "index_topk is 2048; the index cache of sparse attention is not priced",
    ),
    ("DeepSeek-V3", {"kv_lora_rank": None}, "kv_lora_rank is null; give an integer"),
    ("Ling-3.0-tiny", {"layer_group_size": 5}, "layer_group_size is 5; it must divide num_hidden_layers, 24"),
    (
        "Ling-3.0-tiny",
        {"layer_group_size": [1, 0]},
        "layer_group_size .* lists 2 layers and num_hidden_layers 24",
    ),
    ("Ling-3.0-tiny", {"short_conv_kernel_size": None}, "short_conv_kernel_size is null; give an integer"),
    ("Ling-3.0-tiny", {"use_mla_nope": "no"}, 'use_mla_nope is "no"; give true or false'),
    (
        "BailingMoeV2_5",
        {"short_conv_kernel_size": 4},
        "short_conv_kernel_size is 4; only BailingMoeV3 has it",
    ),
    ("Kimi-Linear-48B-A3B", {"linear_attn_config": ...}, "linear_attn_config is missing; give the object"),
    (
        "Kimi-Linear-48B-A3B",
        {"linear_attn_config": {}},
        "linear_attn_config.num_heads is missing; give an integer",
    ),
    ("Kimi-Linear-48B-A3B", {"num_hidden_layers": 28}, "full_attn_layers .* name each of the 28 layers once"),
    (
        "Qwen3-Next-80B-A3B",
        {"full_attention_interval": ...},
        "full_attention_interval is missing; give an integer",
    ),
    (
        "Qwen3-Next-80B-A3B",
        {"layer_types": every(3, 48)},
        "full_attention_interval is 4; layer_types says otherwise",
    ),
    (
        "Qwen3-Next-80B-A3B",
        {"layer_types": every(4, 44)},
        "layer_types .* lists 44 layers and num_hidden_layers 48",
    ),
    ("Qwen3-Next-80B-A3B", {"layer_types": "SSSA"}, 'layer_types is "SSSA"; give an array of texts'),
    (
        "Qwen3-Next-80B-A3B",
        {"linear_num_value_heads": 33},
        "linear_num_value_heads is 33; it must be a multiple",
    ),
    ("Qwen3-Next-80B-A3B", {"mamba_ssm_dtype": "fp8"}, 'mamba_ssm_dtype is "fp8"; give bfloat16'),
    ("Qwen3.5-27B", {"text_config": []}, "text_config is \\[\\]; give the object"),
    ("Qwen3.5-27B", {"text_config": ...}, "num_attention_heads is missing|linear_num_key_heads is missing"),
    (
        "Qwen3.5-27B",
        {"torch_dtype": "float16"},
        'torch_dtype is "float16"; that of text_config.dtype is bfloat16',
    ),
    (
        "Nemotron-Nano-9B-v2",
        {"hybrid_override_pattern": "MX"},
        'hybrid_override_pattern is "MX"; give one letter',
    ),
    ("Nemotron-Nano-9B-v2", {"num_hidden_layers": 52}, "lists 56 layers and num_hidden_layers 52"),
    ("Nemotron-Nano-9B-v2", {"mamba_n_groups": 4}, "mamba_n_groups is 4; n_groups is 8; keep one of them"),
    (
        "Nemotron-Nano-9B-v2",
        {"head_dim": ..., "attention_head_dim": 64},
        "attention_head_dim is 64; the engines",
    ),
    ("Nemotron-Nano-9B-v2", {"n_groups": 7}, "n_groups is 7; it must divide mamba_num_heads, 128"),
    ("Granite-4.0-H-1B", {"layer_types": ...}, "layer_types is missing; give an array of texts"),
    (
        "Granite-4.0-H-1B",
        {"layer_types": ["mamba"] * 40},
        "no layer of GraniteMoeHybridForCausalLM is attention",
    ),
    (
        "Granite-4.0-H-1B",
        {"mamba_d_head": 32},
        "mamba_d_head is 32; mamba_n_heads 48 times it must be the inner width",
    ),
    ("Granite-4.0-H-1B", {"head_dim": 64}, "head_dim is 64; this class uses hidden_size / heads, 128"),
    ("Granite-4.0-H-1B", {"mamba_expand": "2"}, 'mamba_expand is "2"; give a number above 0'),
    ("Granite-4.0-H-1B", {"mamba_expand": 2.0001}, "mamba_expand is 2.0001; the inner width would be"),
    ("Falcon-H1-0.5B", {"mamba_d_ssm": ...}, "mamba_d_ssm is missing; give an integer"),
    (
        "Zamba2-7B",
        {"attention_head_dim": 112},
        "attention_head_dim is 112; it is 2 x hidden_size / num_attention_heads",
    ),
    ("Zamba2-7B", {"mamba_headdim": 32}, "mamba_headdim is 32; n_mamba_heads 112 times it must be"),
    ("Bamba-9B", {"attn_layer_indices": [9, 9]}, "attn_layer_indices is \\[9, 9\\]; a layer is named twice"),
    (
        "Bamba-9B",
        {"attn_layer_indices": [32]},
        "attn_layer_indices is \\[32\\]; give an array of integers from 0 to 31",
    ),
    ("Jamba-1.5-Mini", {"attn_layer_offset": 8}, "attn_layer_offset is 8; give an integer from 0 to 7"),
    (
        "Mamba-Codestral-7B",
        {"head_dim": 32},
        "head_dim is 32; num_heads 128 times it must be the inner width, 8,192",
    ),
    (
        "Mamba-Codestral-7B",
        {"intermediate_size": 1},
        "intermediate_size is 1; it must be expand x hidden_size, 8,192",
    ),
    (
        "LFM2-1.2B",
        {"conv_dim": 1024},
        "conv_dim is 1024; SGLang would use hidden_size, 2,048; make them equal",
    ),
    (
        "MiniMax-M1",
        {"attn_type_list": [0, 2] * 40},
        "attn_type_list is .*; give an array of integers from 0 to 1",
    ),
    ("Llama-3.1-8B", {"quantization_config": "fp8"}, 'quantization_config is "fp8"; give the object'),
]


@pytest.mark.parametrize(("name", "changes", "message"), REFUSED)
def test_refusals_name_file_field_value_and_fix(
    name: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = write_config(tmp_path, config_of(name, **changes))
    for engine in ("sglang", "vllm"):
        with pytest.raises(InputError, match=message) as caught:
            footprint(path, engine)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)
