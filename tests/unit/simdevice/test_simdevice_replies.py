"""Generated tokens: the same for the same request, other ones for another, and found again in their text."""

import pytest
from coresched_simdevice.replies import Replies

from coresched.lab.worker.replies import LONGEST, SHORTEST

NEWLINE, END = 0, 1


class Words:
    """A tokenizer of words with a space, words with a capital, letters and a newline."""

    def __init__(self, words: int = 100) -> None:
        stems = [a + b for a in "bdfgklmnprstv" for b in ("ab", "ec", "id", "of", "ug", "ax", "ey", "il")][
            :words
        ]
        texts = ["\n", "<end>", *"abc", *(f" {stem}" for stem in stems), *(stem.title() for stem in stems)]
        self.texts = dict(enumerate(texts))
        self.ids = {text: token for token, text in self.texts.items()}
        self.all_special_ids = [END]
        self.eos_token_id = END

    def __len__(self) -> int:
        return len(self.texts)

    def decode(self, tokens: list[int]) -> str:
        return "".join(self.texts[token] for token in tokens)

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        tokens, place = [], 0
        while place < len(text):
            length = next(n for n in (4, 3, 1) if text[place : place + n] in self.ids)
            tokens.append(self.ids[text[place : place + length]])
            place += length
        return tokens


def reply(replies: Replies, request_id: str, length: int, after: int = NEWLINE) -> list[int]:
    return [replies.token(request_id, position, after, open_ended=False) for position in range(length)]


@pytest.mark.parametrize("words", [100, 10])
def test_a_reply_is_found_again_in_its_text(words: int) -> None:
    tokenizer = Words(words)
    replies = Replies.for_vocabulary(tokenizer, len(tokenizer), ())
    assert replies.exact
    tokens = reply(replies, "a", 300)
    assert tokenizer.encode(tokenizer.decode(tokens), add_special_tokens=False) == tokens
    assert END not in tokens


def test_a_reply_begins_with_a_space_only_behind_a_word() -> None:
    tokenizer = Words()
    replies = Replies.for_vocabulary(tokenizer, len(tokenizer), ())
    assert tokenizer.decode(reply(replies, "a", 1))[0].isupper()
    assert tokenizer.decode(reply(replies, "a", 1, after=tokenizer.ids["b"]))[0] == " "


def test_a_prompt_may_end_with_an_id_that_only_the_model_has() -> None:
    tokenizer = Words()
    replies = Replies.for_vocabulary(tokenizer, 10 * len(tokenizer), ())
    for last in (len(tokenizer), 10 * len(tokenizer) - 1, -5):
        assert tokenizer.decode(reply(replies, "a", 1, after=last))[0].isupper()


def test_requests_have_replies_of_their_own() -> None:
    tokenizer = Words()
    replies = Replies.for_vocabulary(tokenizer, len(tokenizer), ())
    assert reply(replies, "a", 50) == reply(replies, "a", 50)
    assert len({tuple(reply(replies, f"request-{number}", 8)) for number in range(500)}) == 500


def test_only_an_open_reply_ends_by_itself() -> None:
    tokenizer = Words()
    replies = Replies.for_vocabulary(tokenizer, len(tokenizer), ())
    assert END not in reply(replies, "a", 2 * LONGEST)
    lengths = set()
    for number in range(50):
        name = f"request-{number}"
        ends = [replies.token(name, at, NEWLINE, open_ended=True) == END for at in range(LONGEST)]
        lengths.add(ends.index(True) + 1)
    assert len(lengths) > 10
    assert SHORTEST <= min(lengths) <= max(lengths) <= LONGEST


def test_without_a_tokenizer_any_id_but_the_ends_is_drawn() -> None:
    replies = Replies.for_vocabulary(None, 8, {2, 3})
    assert set(reply(replies, "a", 200)) == {0, 1, 4, 5, 6, 7}
    assert not replies.exact
    assert replies.end == 2


def test_a_vocabulary_without_words_and_letters_is_refused() -> None:
    tokenizer = Words()
    tokenizer.texts = {
        token: text if token < 2 or token == 2 else "#" for token, text in tokenizer.texts.items()
    }
    tokenizer.all_special_ids = [END, 2]
    with pytest.raises(ValueError, match="--tokenizer-path"):
        Replies.for_vocabulary(tokenizer, len(tokenizer), ())
