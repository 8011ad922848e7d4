"""config.json files of public models, cut to the fields that decide the caches, one or more of every family.

Each names where its values are from. Lists are written as the checkpoints' rules, not spelled out.
"""

import copy
import json
from pathlib import Path
from typing import Any

Config = dict[str, Any]

BF16 = {"torch_dtype": "bfloat16"}


def every(
    period: int, layers: int, state: str = "linear_attention", full: str = "full_attention"
) -> list[str]:
    """The last layer of each period is attention."""
    return [full if (layer + 1) % period == 0 else state for layer in range(layers)]


def at(places: tuple[int, ...], layers: int, state: str, full: str) -> list[str]:
    """Attention at the given places."""
    return [full if layer in places else state for layer in range(layers)]


CONFIGS: dict[str, Config] = {
    # inclusionAI/Ling-3.0-tiny: config dump of the class BailingMoeV3 (BailingMoeV3Tests in mlx-swift-lm)
    "Ling-3.0-tiny": BF16
    | {
        "architectures": ["BailingMoeV3ForCausalLM"],
        "model_type": "bailing_hybrid",
        "hidden_size": 1536,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "kv_lora_rank": 512,
        "q_lora_rank": 256,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "layer_group_size": 4,
        "short_conv_kernel_size": 4,
        "use_mla_nope": False,
        "mtp_use_kda": False,
        "num_nextn_predict_layers": 0,
        "max_position_embeddings": 131072,
    },
    # The defaults of inclusionAI/Ring-V2.5's configuration_bailing_moe_v2_5.py; no checkpoint of that size
    "BailingMoeV2_5": BF16
    | {
        "architectures": ["BailingMoeV2_5ForCausalLM"],
        "model_type": "bailing_hybrid",
        "hidden_size": 2048,
        "num_hidden_layers": 20,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "kv_lora_rank": 512,
        "q_lora_rank": None,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "layer_group_size": 5,
        "num_nextn_predict_layers": 0,
        "max_position_embeddings": 32768,
    },
    # moonshotai/Kimi-Linear-48B-A3B-Instruct
    "Kimi-Linear-48B-A3B": {
        "architectures": ["KimiLinearForCausalLM"],
        "model_type": "kimi_linear",
        "dtype": "bfloat16",
        "hidden_size": 2304,
        "head_dim": 72,
        "num_hidden_layers": 27,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "kv_lora_rank": 512,
        "q_lora_rank": None,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "mla_use_nope": True,
        "num_nextn_predict_layers": 0,
        "model_max_length": 1048576,
        "linear_attn_config": {
            "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
            "kda_layers": [n for n in range(1, 28) if n not in (4, 8, 12, 16, 20, 24, 27)],
            "head_dim": 128,
            "num_heads": 32,
            "short_conv_kernel_size": 4,
        },
    },
    # Qwen/Qwen3-Next-80B-A3B-Instruct
    "Qwen3-Next-80B-A3B": BF16
    | {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "hidden_size": 2048,
        "num_hidden_layers": 48,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "full_attention_interval": 4,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "max_position_embeddings": 262144,
    },
    # Qwen/Qwen3.5-27B: the text model's fields are nested
    "Qwen3.5-27B": {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "vision_config": {"depth": 27, "hidden_size": 1152, "num_heads": 16},
        "text_config": {
            "model_type": "qwen3_5_text",
            "dtype": "bfloat16",
            "hidden_size": 5120,
            "num_hidden_layers": 64,
            "num_attention_heads": 24,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "full_attention_interval": 4,
            "layer_types": every(4, 64),
            "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 48,
            "mamba_ssm_dtype": "float32",
            "mtp_num_hidden_layers": 1,
            "max_position_embeddings": 262144,
        },
    },
    # nvidia/NVIDIA-Nemotron-Nano-9B-v2
    "Nemotron-Nano-9B-v2": BF16
    | {
        "architectures": ["NemotronHForCausalLM"],
        "model_type": "nemotron_h",
        "hidden_size": 4480,
        "num_hidden_layers": 56,
        "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "mamba_num_heads": 128,
        "mamba_head_dim": 80,
        "ssm_state_size": 128,
        "conv_kernel": 4,
        "n_groups": 8,
        "expand": 2,
        "mamba_ssm_cache_dtype": "float32",
        "max_position_embeddings": 131072,
    },
    # ibm-granite/granite-4.0-h-1b: "published config.json (2026-08-24)" in a public test fixture
    "Granite-4.0-H-1B": BF16
    | {
        "architectures": ["GraniteMoeHybridForCausalLM"],
        "model_type": "granitemoehybrid",
        "hidden_size": 1536,
        "num_hidden_layers": 40,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "layer_types": at((5, 15, 25, 35), 40, "mamba", "attention"),
        "mamba_d_state": 128,
        "mamba_n_groups": 1,
        "mamba_n_heads": 48,
        "mamba_d_head": 64,
        "mamba_expand": 2,
        "mamba_d_conv": 4,
        "max_position_embeddings": 131072,
    },
    # tiiuae/Falcon-H1-0.5B: NVIDIA-NeMo Megatron-Bridge test_falconh1_bridge; 36 layers, 24 heads of 64
    "Falcon-H1-0.5B": BF16
    | {
        "architectures": ["FalconH1ForCausalLM"],
        "model_type": "falcon_h1",
        "hidden_size": 1024,
        "num_hidden_layers": 36,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "mamba_d_ssm": 1536,
        "mamba_n_heads": 24,
        "mamba_d_head": 64,
        "mamba_n_groups": 1,
        "mamba_d_state": 128,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "attn_layer_indices": None,
        "max_position_embeddings": 16384,
    },
    # Zyphra/Zamba2-7B-Instruct
    "Zamba2-7B": BF16
    | {
        "architectures": ["Zamba2ForCausalLM"],
        "model_type": "zamba2",
        "hidden_size": 3584,
        "num_hidden_layers": 81,
        "layers_block_type": at((6, *range(11, 78, 6)), 81, "mamba", "hybrid"),
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "attention_head_dim": 224,
        "mamba_d_state": 64,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_ngroups": 2,
        "mamba_headdim": 64,
        "n_mamba_heads": 112,
        "max_position_embeddings": 4096,
    },
    # ibm-ai-platform/Bamba-9B
    "Bamba-9B": BF16
    | {
        "architectures": ["BambaForCausalLM"],
        "model_type": "bamba",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "attn_layer_indices": [9, 18, 27],
        "mamba_d_state": 128,
        "mamba_d_conv": 4,
        "mamba_d_head": "auto",
        "mamba_n_heads": 128,
        "mamba_n_groups": 1,
        "mamba_expand": 2,
        "max_position_embeddings": 262144,
    },
    # ai21labs/AI21-Jamba-1.5-Mini (onnx-diagnostic, get_ai21_jamba_15_mini)
    "Jamba-1.5-Mini": BF16
    | {
        "architectures": ["JambaForCausalLM"],
        "model_type": "jamba",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "attn_layer_offset": 4,
        "attn_layer_period": 8,
        "mamba_d_conv": 4,
        "mamba_d_state": 16,
        "mamba_expand": 2,
        "max_position_embeddings": 262144,
    },
    # tiiuae/falcon-mamba-7b: expand is 16 and not used where intermediate_size is given
    "Falcon-Mamba-7B": BF16
    | {
        "architectures": ["FalconMambaForCausalLM"],
        "model_type": "falcon_mamba",
        "hidden_size": 4096,
        "num_hidden_layers": 64,
        "intermediate_size": 8192,
        "expand": 16,
        "state_size": 16,
        "conv_kernel": 4,
    },
    # mistralai/Mamba-Codestral-7B-v0.1 (the defaults of transformers' Mamba2Config)
    "Mamba-Codestral-7B": BF16
    | {
        "architectures": ["Mamba2ForCausalLM"],
        "model_type": "mamba2",
        "hidden_size": 4096,
        "num_hidden_layers": 64,
        "num_heads": 128,
        "head_dim": 64,
        "state_size": 128,
        "conv_kernel": 4,
        "n_groups": 8,
        "expand": 2,
    },
    # LiquidAI/LFM2-1.2B (config.json fetched 2026-08-19, in a public test)
    "LFM2-1.2B": BF16
    | {
        "architectures": ["Lfm2ForCausalLM"],
        "model_type": "lfm2",
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "full_attn_idxs": [2, 5, 8, 10, 12, 14],
        "conv_L_cache": 3,
        "conv_dim": 2048,
        "max_position_embeddings": 128000,
    },
    # LiquidAI/LFM2-8B-A1B
    "LFM2-8B-A1B": BF16
    | {
        "architectures": ["Lfm2MoeForCausalLM"],
        "model_type": "lfm2_moe",
        "hidden_size": 2048,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "layer_types": at((2, 6, 10, 14, 18, 21), 24, "conv", "full_attention"),
        "conv_L_cache": 3,
        "max_position_embeddings": 128000,
    },
    # MiniMaxAI/MiniMax-M1-80k
    "MiniMax-M1": BF16
    | {
        "architectures": ["MiniMaxM1ForCausalLM"],
        "model_type": "minimax_m1",
        "hidden_size": 6144,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10,
        "max_position_embeddings": 10240000,
    },
    # meta-llama/Llama-3.1-8B
    "Llama-3.1-8B": BF16
    | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
    },
    # Qwen/Qwen3-32B
    "Qwen3-32B": BF16
    | {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 5120,
        "num_hidden_layers": 64,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "sliding_window": None,
        "use_sliding_window": False,
        "max_position_embeddings": 40960,
    },
    # deepseek-ai/DeepSeek-V3
    "DeepSeek-V3": BF16
    | {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "hidden_size": 7168,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "num_nextn_predict_layers": 1,
        "max_position_embeddings": 163840,
    },
}


def config_of(name: str, **changes: Any) -> Config:
    """A copy of a model's config with top-level fields changed; `...` removes one."""
    config = copy.deepcopy(CONFIGS[name]) | changes
    return {field: value for field, value in config.items() if value is not ...}


def write_config(folder: Path, config: object) -> Path:
    """The config as a config.json in the folder."""
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path
