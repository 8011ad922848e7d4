"""Models whose caches have real dimensions. Weights are not needed, and the forward is simulated."""

import json
from pathlib import Path
from typing import Any

# What SGLang wants to know of every model, and what has no influence on its caches.
_COMMON: dict[str, Any] = {
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 262144,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}

MODELS: dict[str, dict[str, Any]] = {
    # Layers, heads, ranks and the conv are those of inclusionAI/Ling-3.0-flash, as in
    # coresched/capacity/catalogue.json: 35 KDA and 7 MLA layers. The rest is assumed.
    "ling-3.0-flash": {
        "architectures": ["BailingMoeV3ForCausalLM"],
        "model_type": "bailing_hybrid",
        "vocab_size": 157184,
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 42,
        "layer_group_size": 6,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "head_dim": 128,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "short_conv_kernel_size": 4,
        "rope_theta": 6e6,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "num_shared_experts": 1,
        "moe_intermediate_size": 1024,
        "first_k_dense_replace": 1,
        "n_group": 8,
        "topk_group": 4,
    },
    # Qwen/Qwen3-Next-80B-A3B-Instruct: 36 GDN and 12 attention layers.
    "qwen3-next-80b-a3b": {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "vocab_size": 151936,
        "hidden_size": 2048,
        "intermediate_size": 5120,
        "num_hidden_layers": 48,
        "full_attention_interval": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "partial_rotary_factor": 0.25,
        "rope_theta": 1e7,
        "attention_bias": False,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "decoder_sparse_step": 1,
        "norm_topk_prob": True,
        "mlp_only_layers": [],
        "output_router_logits": False,
    },
}


def write_model(name: str, folder: Path) -> Path:
    """The directory of a model in ``folder``: its config.json alone, no tokenizer."""
    directory = folder / name
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(_COMMON | MODELS[name], indent=1))
    return directory
