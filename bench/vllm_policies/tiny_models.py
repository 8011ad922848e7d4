"""Tiny models with random weights that vLLM runs on any CPU.

LFM2, of short convolutions and attention, is the one of `coresched_vllm.local`. vLLM's Python writes the
others, with transformers.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from coresched_vllm.local.tiny_model import write_model

_COMMON: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "max_position_embeddings": 8_192,
    # So large that what is cached shows in the output; with the usual ones layers pass on what they get.
    "initializer_range": 0.25,
}


def _qwen3_next() -> Any:
    """Gated delta nets and attention, with experts."""
    from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

    config = Qwen3NextConfig(
        **_COMMON,
        num_hidden_layers=4,
        layer_types=["linear_attention", "linear_attention", "linear_attention", "full_attention"],
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=64,
        linear_conv_kernel_dim=4,
        linear_key_head_dim=64,  # vLLM's CPU kernel takes no 32
        linear_value_head_dim=64,
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
        decoder_sparse_step=1,
        mlp_only_layers=[],
    )
    return Qwen3NextForCausalLM(config)


def _qwen3() -> Any:
    """Attention alone."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        **_COMMON,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
    )
    return Qwen3ForCausalLM(config)


_MAKERS: dict[str, tuple[Callable[[], Any], str]] = {
    "qwen3-next": (_qwen3_next, "bfloat16"),  # what vLLM's CPU kernel takes
    "qwen3": (_qwen3, "float32"),
}

TINY_MODELS = ("lfm2", *_MAKERS)


def dtype_of(name: str) -> str:
    return _MAKERS[name][1] if name in _MAKERS else "float32"


def write_tiny_model(name: str, folder: Path) -> Path:
    """The directory of a model in ``folder``, with the same weights each time.

    Raises KeyError for another name.
    """
    directory = folder / name
    if name == "lfm2":
        return write_model(directory)
    import torch

    make, dtype = _MAKERS[name]
    torch.manual_seed(1)
    make().to(getattr(torch, dtype)).save_pretrained(directory)
    return directory
