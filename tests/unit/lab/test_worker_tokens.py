"""The live worker's stand-in tokenizer and its replies."""

from array import array
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresched.lab.worker.replies import LONGEST, SHORTEST, reply_length, reply_tokens
from coresched.lab.worker.tokens import PrefixDigests, decode, encode, render_chat

DIGEST = bytes(16)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("the quick  fox", ["the", " qui", "ck", " ", " fox"]),
        ("abcdefgh", ["abcd", "efgh"]),
        ("a\n\tb", ["a", "\n", "\tb"]),
        ("", []),
    ],
)
def test_text_is_cut_at_white_space_and_every_four_bytes(text: str, pieces: list[str]) -> None:
    assert [decode([token]) for token in encode(text)] == pieces


@given(st.text())
def test_tokens_give_the_text_back(text: str) -> None:
    assert decode(encode(text)) == text


@given(st.text(), st.integers(1, 40), st.text())
def test_a_reply_is_found_again_in_the_text_that_continues_it(prompt: str, length: int, more: str) -> None:
    tokens = encode(prompt)
    reply = reply_tokens(DIGEST, 0, length, message=False)
    assert len(reply) == length
    assert encode(prompt + decode(reply) + more) == tokens + array("q", reply) + encode(more)


@given(st.text(), st.integers(1, 40), st.text())
def test_a_stripped_reply_is_found_again_in_the_chat_that_continues_it(
    question: str, length: int, more: str
) -> None:
    chat = [("user", question)]
    prompt = render_chat(chat)
    reply = reply_tokens(DIGEST, 0, length, message=True)
    continued = render_chat([*chat, ("assistant", decode(reply).strip()), ("tool", more)])
    assert continued[: len(prompt) + length] == prompt + array("q", reply)


def test_a_chat_is_its_messages_between_markers() -> None:
    system, user = encode("be brief"), encode("why?")
    assert len(render_chat([("system", "be brief"), ("user", "why?")])) == len(system) + len(user) + 5
    assert render_chat([("user", "x")]) != render_chat([("tool", "x")])
    assert len(render_chat([("user", "x")], tools='[{"a":1}]')) == 4 + len(encode('[{"a":1}]')) + 2


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=30), st.data())
def test_digests_of_prefixes_are_the_same_in_any_order(tokens: list[int], data: st.DataObject) -> None:
    digests = PrefixDigests(array("q", tokens))
    for length in data.draw(st.lists(st.integers(0, len(tokens)))):
        expected = blake2b(array("q", tokens[:length]).tobytes(), digest_size=16).digest()
        assert digests.of(length) == expected
        assert PrefixDigests(array("q", tokens[:length])).continued(tokens[length:]) == digests.whole
    assert digests.of(len(tokens)) == digests.whole


@given(st.binary(min_size=16, max_size=16), st.integers(-(2**63), 2**63 - 1))
def test_length_and_text_are_fixed_by_prompt_and_seed(digest: bytes, seed: int) -> None:
    length = reply_length(digest, seed)
    assert SHORTEST <= length <= LONGEST
    assert reply_length(digest, seed) == length
    reply = reply_tokens(digest, seed, length, message=True)
    assert reply == reply_tokens(digest, seed, length, message=True)
    assert reply != reply_tokens(digest, seed ^ 1, length, message=True)
