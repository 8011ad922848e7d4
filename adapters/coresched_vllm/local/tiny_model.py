"""A tiny hybrid model, made on the spot: short convolutions and attention (LFM2), which run on any device.

    python -m coresched_vllm.local.tiny_model FOLDER

writes one with weights and a tokenizer. Nothing here needs vLLM, torch or the network.
"""

from __future__ import annotations

import json
import random
import struct
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

CONVOLVED: Final = 3
"""Tokens that a short convolution reads, of which the last but one are its state."""

END, PADDING = 256, 257
"""Ids beside those of the 256 bytes."""

TOKEN_IDS: Final = (3, 250)
"""LOW and HIGH of ids for prompts, which every vocabulary here has and which are nothing special."""


@dataclass(frozen=True)
class Shape:
    """Of a model: how wide and how deep it is. ``layers`` has a "c" for each convolution, "a" for attention.

    ``hidden_size`` is a multiple of 64; a head has 32 numbers, and two heads share keys and values.
    """

    hidden_size: int = 64
    layers: str = "ccac"
    vocabulary: int = 320
    longest_context: int = 8_192


def write_model(folder: Path, shape: Shape = Shape(), *, weights: bool = True) -> Path:
    """A model directory, with a tokenizer that has a token for each byte.

    The weights are random and so large that every token of a prompt shows in the reply. Without them the
    server must make up its own (`--load-format dummy`).
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_config(shape), indent=2))
    write_tokenizer(folder)
    if weights:
        _write_weights(folder / "model.safetensors", shape)
    return folder


def write_tokenizer(folder: Path) -> None:
    """Into a model directory: a token for each byte, END and PADDING, and a chat template."""
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer()))
    (folder / "tokenizer_config.json").write_text(json.dumps(_TOKENIZER_CONFIG))


def _config(shape: Shape) -> dict[str, Any]:
    width = shape.hidden_size
    return {
        "architectures": ["Lfm2ForCausalLM"],
        "model_type": "lfm2",
        "vocab_size": shape.vocabulary,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": len(shape.layers),
        "num_attention_heads": width // 32,
        "num_key_value_heads": width // 64,
        "layer_types": [{"c": "conv", "a": "full_attention"}[kind] for kind in shape.layers],
        "conv_L_cache": CONVOLVED,
        "conv_bias": False,
        "block_auto_adjust_ff_dim": False,
        "norm_eps": 1e-5,
        "rope_parameters": {"rope_theta": 1_000_000.0, "rope_type": "default"},
        "max_position_embeddings": shape.longest_context,
        "tie_word_embeddings": True,
        "bos_token_id": END,
        "eos_token_id": END,
        "pad_token_id": PADDING,
        "dtype": "float32",
        # vLLM reads these; transformers knows hidden_size and intermediate_size alone.
        "conv_dim": width,
        "conv_dim_out": width,
        "block_dim": width,
        "block_ff_dim": 2 * width,
        "block_multiple_of": 256,
        "block_ffn_dim_multiplier": 1.0,
    }


def _tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes; a tensor of one dimension is a norm's."""
    width, inner = shape.hidden_size, 2 * shape.hidden_size
    yield "model.embed_tokens.weight", (shape.vocabulary, width)
    yield "model.embedding_norm.weight", (width,)
    for number, kind in enumerate(shape.layers):
        layer = f"model.layers.{number}"
        yield f"{layer}.operator_norm.weight", (width,)
        yield f"{layer}.ffn_norm.weight", (width,)
        yield f"{layer}.feed_forward.w1.weight", (inner, width)
        yield f"{layer}.feed_forward.w3.weight", (inner, width)
        yield f"{layer}.feed_forward.w2.weight", (width, inner)
        if kind == "c":
            yield f"{layer}.conv.conv.weight", (width, 1, CONVOLVED)
            yield f"{layer}.conv.in_proj.weight", (3 * width, width)
            yield f"{layer}.conv.out_proj.weight", (width, width)
        else:
            for name, rows in (("q_proj", width), ("k_proj", width // 2), ("v_proj", width // 2)):
                yield f"{layer}.self_attn.{name}.weight", (rows, width)
            yield f"{layer}.self_attn.out_proj.weight", (width, width)
            yield f"{layer}.self_attn.q_layernorm.weight", (32,)
            yield f"{layer}.self_attn.k_layernorm.weight", (32,)


def _write_weights(path: Path, shape: Shape) -> None:
    """In the safetensors format: the length of a JSON header, the header, then the numbers of each tensor."""
    source = random.Random(1)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, dimensions in _tensors(shape):
        begin = len(data)
        if len(dimensions) == 1:
            data += array("f", [1.0] * dimensions[0]).tobytes()
        else:
            data += array("f", (source.gauss(0.0, 0.25) for _ in range(prod(dimensions)))).tobytes()
        header[name] = {"dtype": "F32", "shape": dimensions, "data_offsets": (begin, len(data))}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


_TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": "<|eos|>",
    "pad_token": "<|pad|>",
    "chat_template": "{% for message in messages %}{{ message['content'] }}\n{% endfor %}",
}


def _tokenizer() -> dict[str, Any]:
    """In the format of the tokenizers library: each byte is the character that GPT-2 has for it."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": number, "content": content, **special}
            for number, content in ((END, "<|eos|>"), (PADDING, "<|pad|>"))
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {letter: number for number, letter in enumerate(_byte_letters())},
            "merges": [],
        },
    }


def _byte_letters() -> list[str]:
    """The printable ones of Latin-1 stand for themselves, the others for characters from 256 on."""
    themselves = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = range(256, 256 + 256 - len(themselves))
    return sorted(map(chr, [*themselves, *others]))


if __name__ == "__main__":
    write_model(Path(sys.argv[1]))
