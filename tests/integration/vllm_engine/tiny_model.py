"""A tiny hybrid model with random weights: short convolutions and attention, which run on any CPU."""

from pathlib import Path


def write_model(folder: Path) -> Path:
    """A model directory of LFM2's kind, with weights so large that what is cached shows in the output."""
    import torch
    from transformers import Lfm2Config, Lfm2ForCausalLM

    config = Lfm2Config(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        layer_types=["conv", "conv", "full_attention", "conv"],
        block_auto_adjust_ff_dim=False,
        conv_L_cache=3,
        conv_dim=64,  # vLLM reads these, transformers has hidden_size for all of them
        conv_dim_out=64,
        conv_bias=False,
        max_position_embeddings=8_192,
        initializer_range=0.25,
        torch_dtype="float32",
    )
    torch.manual_seed(1)
    Lfm2ForCausalLM(config).save_pretrained(folder)
    return folder
