"""What the worker answers without a script: words without meaning, the same for the same prompt and seed."""

from hashlib import blake2b, shake_128
from itertools import product
from typing import Final

from coresched.lab.worker.tokens import Tokens, encode

SHORTEST: Final = 32
LONGEST: Final = 287
"""Range of the reply's length in tokens where the request gives none."""

_CONSONANTS: Final = "bdfgklmnprstvz"
_WORDS: Final = ["".join(letters) for letters in product(_CONSONANTS, "aeiou", _CONSONANTS)]
_LATER: Final = [encode(" " + word)[0] for word in _WORDS]
_FIRST: Final = [encode("A" + word)[0] for word in _WORDS]


def reply_length(prompt_digest: bytes, seed: int) -> int:
    """SHORTEST to LONGEST tokens, evenly spread over prompts and seeds."""
    drawn = blake2b(_key(prompt_digest, seed), digest_size=8, person=b"length").digest()
    return SHORTEST + int.from_bytes(drawn, "big") % (LONGEST - SHORTEST + 1)


def reply_tokens(prompt_digest: bytes, seed: int, length: int, *, message: bool) -> Tokens:
    """``length`` tokens of 4 bytes, each a space and a word.

    In a chat the reply is a message, so that its first token begins with a letter instead: it survives a
    client that strips white space.
    """
    drawn = shake_128(_key(prompt_digest, seed)).digest(2 * length)
    places = [number % len(_WORDS) for number in memoryview(drawn).cast("H")]
    tokens = [_LATER[place] for place in places]
    if message:
        tokens[0] = _FIRST[places[0]]
    return tokens


def _key(prompt_digest: bytes, seed: int) -> bytes:
    return prompt_digest + seed.to_bytes(9, "big", signed=True)
