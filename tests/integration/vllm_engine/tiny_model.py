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
        block_dim=64,  # vLLM reads these; transformers knows hidden_size and intermediate_size alone
        block_ff_dim=128,
        block_multiple_of=256,
        block_ffn_dim_multiplier=1.0,
        conv_dim=64,
        conv_dim_out=64,
        conv_bias=False,
        max_position_embeddings=8_192,
        initializer_range=0.25,
        torch_dtype="float32",
    )
    torch.manual_seed(1)
    Lfm2ForCausalLM(config).save_pretrained(folder)
    return folder


def write_tokenizer(folder: Path) -> None:
    """A token for each byte, and a chat template, for a server."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {letter: place for place, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|eos|>", pad_token="<|pad|>")
    fast.chat_template = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
    fast.save_pretrained(folder)


if __name__ == "__main__":
    import sys

    write_tokenizer(write_model(Path(sys.argv[1])))
