"""Token counts from text, for recordings without a provider's usage."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

BYTES_PER_TOKEN = 4
"""UTF-8 bytes a token: what English and source code come to with today's tokenizers, within a third."""


@dataclass(frozen=True)
class TokenCounter:
    """Counts the tokens of a text, and says how."""

    count: Callable[[str], int]
    quality: str
    """estimated, or counted where it is the model's own tokenizer."""
    how: str

    def message(self, content: Any) -> int:
        """Tokens of a message's content: a text, or parts of which those with text count."""
        return self.count(content) if isinstance(content, str) else self.count(text_of(content))


def _by_bytes(text: str) -> int:
    # A lone surrogate, which JSON can spell, has no UTF-8.
    return -(-len(text.encode(errors="replace")) // BYTES_PER_TOKEN)


BY_BYTES = TokenCounter(_by_bytes, "estimated", f"one token for {BYTES_PER_TOKEN} bytes of UTF-8 text")


def text_of(content: Any) -> str:
    """The text in a message's content, however its API nests it; images and the like add none."""
    parts: list[str] = []
    pending = [content]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            parts.append(value)
        elif isinstance(value, list):
            pending.extend(reversed(value))
        elif isinstance(value, dict):
            # Of a part only these are read by a model; type, id, cache marks and image data are not.
            for key in ("arguments", "input", "name", "function", "output", "content", "thinking", "text"):
                if key in value:
                    pending.append(value[key])
    return "\n".join(parts)
