"""A model directory for SGLang out of a config.json alone: its tokenizer makes every byte of text a token."""

import json
from pathlib import Path
from typing import Any, Final

from coresched_engine.virtual.model_config import write_config_directory

from coresched.capacity.fields import one_line, shown
from coresched.errors import InputError

TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer.model", "tiktoken.model", "vocab.json")

SPECIAL: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Tokens 256 to 258; below, a byte is the token of its value."""

CHAT_TEMPLATE: Final = (
    "{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content or '' }}"
    "{% if message.tool_calls %}{{ message.tool_calls | tojson }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def write_model_directory(config: Path, folder: Path) -> None:
    """Fill ``folder`` with the config, what it needs to be read, and the tokenizer of bytes.

    Raises InputError if the model's vocabulary is too small for that.
    """
    text = config.read_bytes()
    needed = 256 + len(SPECIAL)
    for size in _vocabulary(json.loads(text)):
        if size < needed:
            raise InputError(
                f"--model-config {one_line(str(config))}: vocab_size is {shown(size)}, below the {needed} "
                "tokens of one for bytes; give a folder that has a tokenizer too"
            )
    write_config_directory(config, folder)
    (folder / "tokenizer.json").write_text(json.dumps(_byte_tokenizer()))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": SPECIAL[2],
                "pad_token": SPECIAL[0],
                "chat_template": CHAT_TEMPLATE,
            }
        )
    )


def _vocabulary(config: dict[str, Any]) -> list[int]:
    """The vocab_size of a config and of its text model, where they give one."""
    text = config.get("text_config")
    sizes = [part.get("vocab_size") for part in (config, text) if isinstance(part, dict)]
    return [size for size in sizes if isinstance(size, int)]


def _byte_tokenizer() -> dict[str, Any]:
    """The contents of tokenizer.json: byte-pair encoding without a merge."""
    vocabulary = {letter: byte for byte, letter in enumerate(_byte_letters())}
    vocabulary |= {token: 256 + place for place, token in enumerate(SPECIAL)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    return {
        "version": "1.0",
        "added_tokens": [{"id": vocabulary[token], "content": token, **flags} for token in SPECIAL],
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "fuse_unk": False, "vocab": vocabulary, "merges": []},
    }


def _byte_letters() -> list[str]:
    """The letter by which byte-level tokenizers write each byte: itself, or one beyond 255 if unprintable."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
