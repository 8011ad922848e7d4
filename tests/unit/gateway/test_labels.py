"""The trajectory label of a request, from wherever it comes, and one sentence for each that is none."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from coresched.core.checks import check_label
from coresched.gateway.labels import LABEL_FIELDS, PROMPT_BYTES, body_label, header_label
from coresched.gateway.refusal import RefusedError

CHAT = "/v1/chat/completions"


def headers(*pairs: tuple[str, str]) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict(pairs))


def label(path: str, body: Any, names: tuple[str, ...] = LABEL_FIELDS) -> str:
    return body_label(path, json.dumps(body).encode(), names)


def test_the_routing_key_goes_before_the_session_id() -> None:
    assert header_label(headers(("X-Session-ID", "s"), ("X-SMG-Routing-Key", "k"))) == "k"
    assert header_label(headers(("X-Session-ID", "s"))) == "s"
    assert header_label(headers(("X-Request-ID", "r"))) is None
    assert header_label(headers(("x-session-id", "Straße " + "ß" * 252))) == "Straße " + "ß" * 252


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([("x-smg-routing-key", "")], "header x-smg-routing-key must not be empty, got ''"),
        ([("x-session-id", "k" * 513)], "header x-session-id must be at most 512 bytes of UTF-8, got 513"),
        ([("x-session-id", "ß" * 257)], "at most 512 bytes of UTF-8, got 514"),
        ([("x-smg-routing-key", "a\udcff")], r"header x-smg-routing-key must be UTF-8, got 'a\udcff'"),
        ([("x-smg-routing-key", "a\tb")], r"must have no control characters, got 'a\tb'"),
        ([("x-smg-routing-key", "a"), ("X-Smg-Routing-Key", "b")], "must be given once, got 'a' and another"),
    ],
)
def test_a_header_that_is_no_label_is_refused_in_one_line(pairs: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(RefusedError) as refused:
        header_label(headers(*pairs))
    assert said in refused.value.message
    assert refused.value.message.endswith("; send 1 to 512 bytes of UTF-8, or leave it out")
    assert "\n" not in refused.value.message
    assert (refused.value.status, refused.value.code) == (400, "invalid_label")
    assert refused.value.param == pairs[0][0]


def test_fields_are_tried_in_order_and_null_is_no_label() -> None:
    body = {"messages": [], "prompt_cache_key": "p", "session_id": "s", "routing_key": None, "user": "u"}
    assert label(CHAT, body) == "s"
    assert label("/generate", {"text": "t", "routing_key": "r"}) == "r"
    assert label(CHAT, body, ("user",)) == "u"
    assert label(CHAT, body, ("no such field",)).startswith("content-")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (17, "body field 'session_id' must be a string, got a JSON value of type int"),
        ("", "body field 'session_id' must not be empty"),
        ("a\nb", r"must have no control characters, got 'a\nb'"),
        ([[]] * 3, "got a JSON value of type list"),
    ],
)
def test_a_field_that_is_no_label_is_refused(value: object, said: str) -> None:
    with pytest.raises(RefusedError, match="session_id") as refused:
        label(CHAT, {"messages": [], "session_id": value})
    assert said in refused.value.message
    assert refused.value.param == "session_id"


def test_a_field_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(RefusedError, match="'session_id' must be a string, got what cannot be read"):
        body_label(CHAT, b'{"session_id": 1e400}', LABEL_FIELDS)


TURN_1 = [{"role": "system", "content": "You fix bugs."}, {"role": "user", "content": [{"text": "bug 1"}]}]


def test_a_chat_keeps_its_label_from_turn_to_turn() -> None:
    first = label(CHAT, {"model": "m", "messages": TURN_1})
    later = [*TURN_1, {"role": "assistant", "content": None}, {"role": "user", "content": "go on"}]
    assert label(CHAT, {"messages": later, "temperature": 0.3}) == first
    assert label(CHAT, {"messages": [TURN_1[0], {"role": "user", "content": "bug 2"}]}) != first
    assert label(CHAT, {"messages": [{"role": "system", "content": "You write."}, TURN_1[1]]}) != first


def test_a_chat_without_user_is_known_by_its_first_message() -> None:
    first = label(CHAT, {"messages": TURN_1[:1]})
    assert label(CHAT, {"messages": [TURN_1[0], {"role": "assistant", "content": "hi"}]}) == first


def test_responses_are_known_by_instructions_and_input() -> None:
    first = label("/v1/responses", {"instructions": "i", "input": TURN_1})
    later = [*TURN_1, {"type": "function_call_output", "output": "o"}]
    assert label("/v1/responses", {"instructions": "i", "input": later}) == first
    assert label("/v1/responses", {"instructions": "j", "input": TURN_1}) != first
    assert label("/v1/responses", {"input": "a"}) != label("/v1/responses", {"input": "b"})


@pytest.mark.parametrize(
    ("path", "name"), [("/v1/completions", "prompt"), ("/generate", "text"), ("/generate", "input_ids")]
)
def test_a_prompt_is_known_by_its_first_bytes(path: str, name: str) -> None:
    start = list(range(2000)) if name == "input_ids" else "x" * PROMPT_BYTES
    more = [7] if name == "input_ids" else "yes"
    assert label(path, {name: start}) == label(path, {name: start + more, "stream": True})
    assert label(path, {name: start}) != label(path, {name: more})


@pytest.mark.parametrize(
    "body",
    [b"", b"\x1f\x8b", b"[]", b"{", b"[" * 10**5, b'{"messages": 7}', b'{"messages": [], "\xff": 1}', b"{}"],
)
@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/responses", "/generate"])
def test_a_body_that_says_nothing_still_has_a_label(path: str, body: bytes) -> None:
    assert body_label(path, body, LABEL_FIELDS) == body_label(path, body, LABEL_FIELDS)
    assert check_label(body_label(path, body, LABEL_FIELDS), "label")


texts = st.text(st.characters(codec="utf-8"))
messages = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "user", "assistant", "tool"]),
        "content": st.none() | texts | st.lists(texts),
    }
)


@given(st.lists(messages, max_size=3), st.lists(messages, min_size=1, max_size=3))
def test_later_turns_never_change_a_label(before: list[Any], after: list[Any]) -> None:
    first = [*before, {"role": "user", "content": "task"}]
    assert label(CHAT, {"messages": first}) == label(CHAT, {"messages": first + after})


@given(
    st.binary() | st.recursive(st.none() | texts | st.integers(), st.lists).map(json.dumps).map(str.encode),
    st.sampled_from([CHAT, "/v1/completions", "/v1/responses", "/generate"]),
)
def test_any_bytes_have_a_label(body: bytes, path: str) -> None:
    assert check_label(body_label(path, body, LABEL_FIELDS), "label").startswith("content-")
