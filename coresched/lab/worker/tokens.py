"""A stand-in for a tokenizer and a chat template, the same everywhere and without model files.

A token of text is at most 4 bytes of UTF-8, and white space always begins one: ``" quick"`` is ``" qui"``
and ``"ck"``. So a reply, whose tokens (see `replies`) have 4 bytes and begin with a space, is found again
token by token in the prompt that continues it. A message is the marker of its role, the tokens of its content
and an end marker.
"""

import re
from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

Tokens = Sequence[int]

ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")
_MARKERS: Final = {role: number for number, role in enumerate(ROLES, 1)}
_END: Final = len(ROLES) + 1
_TOOLS: Final = _END + 1
_PIECE: Final = re.compile(rb"\s[^\s]{0,3}|[^\s]{1,4}")


def encode(text: str) -> "array[int]":
    """Tokens of plain text. A token's id is its bytes behind a 1, read as a number, so ids begin at 256."""
    number = int.from_bytes
    return array("q", [number(b"\1" + piece, "big") for piece in _PIECE.findall(text.encode())])


def decode(tokens: Iterable[int]) -> str:
    """The text of tokens that `encode` gave."""
    return b"".join(map(_bytes, tokens)).decode()


def _bytes(token: int) -> bytes:
    return token.to_bytes(5, "big").lstrip(b"\0")[1:]


def whole_characters(tokens: Tokens, place: int) -> int:
    """``place``, or the last place before it at which no character is cut in two."""
    while 0 < place < len(tokens) and _bytes(tokens[place])[0] & 0xC0 == 0x80:
        place -= 1
    return place


def render_chat(messages: Iterable[tuple[str, str]], tools: str = "") -> "array[int]":
    """The prompt of a chat: tool definitions, then (role, content), then the marker of the reply to come."""
    prompt = array("q")
    if tools:
        prompt.append(_TOOLS)
        prompt.extend(encode(tools))
        prompt.append(_END)
    for role, content in messages:
        prompt.append(_MARKERS[role])
        prompt.extend(encode(content))
        prompt.append(_END)
    prompt.append(_MARKERS["assistant"])
    return prompt


class PrefixDigests:
    """Digests of the prefixes of one token sequence, each computed once.

    O(length) in all, if asked ascending.
    """

    def __init__(self, tokens: "array[int]") -> None:
        self._bytes = memoryview(tokens.tobytes())
        self._item = tokens.itemsize
        self._hash = blake2b(digest_size=16)
        self._hashed = 0
        self._known: dict[int, bytes] = {}
        self.whole = blake2b(self._bytes, digest_size=16).digest()

    def of(self, length: int) -> bytes:
        """The digest of the first ``length`` tokens, which must not be more than there are."""
        known = self._known.get(length)
        if known is not None:
            return known
        if length < self._hashed:
            digest = blake2b(self._bytes[: length * self._item], digest_size=16).digest()
        else:
            self._hash.update(self._bytes[self._hashed * self._item : length * self._item])
            self._hashed = length
            digest = self._hash.digest()
        self._known[length] = digest
        return digest

    def continued(self, tokens: Tokens) -> bytes:
        """The digest of the whole sequence and ``tokens`` after it."""
        whole = blake2b(self._bytes, digest_size=16)
        whole.update(array("q", tokens).tobytes())
        return whole.digest()
