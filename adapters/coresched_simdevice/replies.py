"""The tokens that the simulated device answers with: words without meaning.

They are the same for the same request id and position, differ between requests, and are chosen so that the
text of a reply, sent back as part of the next prompt, is tokenized into the reply's tokens again. Otherwise
every later turn of a chat would miss the cache where the reply begins, as it does not on a real model.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from coresched.lab.worker.replies import reply_length

MOST_LOOKED_AT: Final = 16_384
"""Tokens of the vocabulary that are looked at, evenly spread over it."""

FEWEST_WORDS: Final = 64

_LATER: Final = re.compile(r" [a-z]{2,10}")
_FIRST: Final = re.compile(r"[A-Z][a-z]{1,9}")
_LETTER: Final = re.compile(r"[a-z]")


@dataclass(frozen=True)
class Replies:
    """What to choose from: ``first`` has the words that begin a message, ``later`` those behind a space.

    ``end`` is the token that ends a reply, None where the model has none. ``text_of`` decodes one token.
    ``exact`` is whether the text of a reply comes back as its tokens.
    """

    first: Sequence[int]
    later: Sequence[int]
    end: int | None
    text_of: Callable[[int], str]
    exact: bool

    @classmethod
    def for_vocabulary(cls, tokenizer: Any, vocabulary: int, ends: Collection[int]) -> "Replies":
        """Choices among the tokens of ``tokenizer``; None for one, any id of the vocabulary but ``ends``."""
        if tokenizer is None:
            ids = [token for token in range(vocabulary) if token not in ends]
            return cls(ids, ids, min(ends, default=None), lambda token: "", exact=False)
        end, known = tokenizer.eos_token_id, len(tokenizer)
        first, later = _words(tokenizer)
        sample = [first[0], *(later[step * 7919 % len(later)] for step in range(64))]
        return cls(
            first,
            later,
            min(ends, default=None) if end is None else end,
            # A model may have more ids than its tokenizer, and some tokenizers refuse to decode those.
            lambda token: str(tokenizer.decode([token])) if 0 <= token < known else "",
            exact=tokenizer.encode(tokenizer.decode(sample), add_special_tokens=False) == sample,
        )

    def token(self, request_id: str, position: int, last_prompt_token: int, *, open_ended: bool) -> int:
        """The reply's token at ``position``, 0 being the first one.

        An open-ended reply has the length that `lab.worker` draws for one, and then ends; no other ends
        by itself. The first token has a space before it where the prompt ends with a letter or a digit.
        """
        if open_ended and self.end is not None:
            name = blake2b(request_id.encode(), digest_size=16).digest()
            if position >= reply_length(name, 0) - 1:
                return self.end
        within = position > 0 or self.text_of(last_prompt_token)[-1:].isalnum()
        choices = self.later if within else self.first
        drawn = blake2b(f"{position}:{request_id}".encode(), digest_size=8).digest()
        return choices[int.from_bytes(drawn, "big") % len(choices)]


def _words(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Tokens that begin a message, and tokens that go on with it.

    Whole words: where a word begins with a space, tokenizers split there, whatever merges they know. A
    vocabulary without words is one of bytes, where letters do.
    """
    size = len(tokenizer)
    special = set(tokenizer.all_special_ids)
    ids = [token for token in range(0, size, -(-size // MOST_LOOKED_AT)) if token not in special]
    # Behind another token, as some tokenizers leave out the space that begins a text.
    anchor = tokenizer.encode("a", add_special_tokens=False)[-1]
    behind = len(tokenizer.decode([anchor]))
    texts = {token: tokenizer.decode([anchor, token])[behind:] for token in ids}
    first = [token for token, text in texts.items() if _FIRST.fullmatch(text)]
    later = [token for token, text in texts.items() if _LATER.fullmatch(text)]
    if min(len(first), len(later)) >= FEWEST_WORDS:
        return first, later
    letters = [token for token, text in texts.items() if _LETTER.fullmatch(text)]
    if letters:
        return letters, letters
    raise ValueError(
        "coresched_simdevice: the tokenizer has neither words nor letters of its own to answer with; give "
        "--tokenizer-path another one"
    )
