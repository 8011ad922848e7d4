"""Tool calls in replies, whole and streamed, and in requests."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresched.sidecar.messages import StreamedReply, ToolCall, reply_calls, requested_call

CALL = ToolCall("t", {"x": 1})


@pytest.mark.parametrize(
    ("body", "call"),
    [
        ({"tool_name": "t", "tool_args": {"x": 1}}, CALL),
        ({"tool_name": "t", "tool_args": '{"x": 1}'}, CALL),
        ({"name": "t", "arguments": {"x": 1}}, CALL),
        ({"method": "tools/call", "params": {"name": "t", "arguments": {"x": 1}}}, CALL),
        ({"tool_name": "t"}, ToolCall("t", {})),
        ({"tool_name": "t", "tool_args": None}, ToolCall("t", {})),
        ({"tool_name": "t", "tool_args": "no JSON"}, ToolCall("t", "no JSON")),
        ({"tool_name": "t", "tool_args": "[" * 10000}, ToolCall("t", "[" * 10000)),
        ({"method": "tools/list", "name": "t"}, None),
        ({"tool_name": 1}, None),
        ([], None),
    ],
)
def test_a_request_says_which_tool_and_with_what(body: Any, call: ToolCall | None) -> None:
    assert requested_call(json.dumps(body).encode()) == call


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100000])
def test_what_cannot_be_read_is_no_call(body: bytes) -> None:
    assert requested_call(body) is None
    assert reply_calls(body) is None


def test_the_calls_of_a_reply_are_those_of_all_its_choices() -> None:
    function = {"name": "t", "arguments": '{"x": 1}'}
    choices = [
        {"message": {"content": "", "tool_calls": [{"function": function}, {"function": None}]}},
        {"message": {"function_call": function}},
        {"message": {"content": "no call", "tool_calls": None}},
    ]
    assert reply_calls(json.dumps({"choices": choices}).encode()) == [CALL, CALL]


@pytest.mark.parametrize("body", [{"error": {}}, {"choices": 1}, {"choices": [1]}, []])
def test_what_is_no_chat_completion_has_no_calls(body: Any) -> None:
    assert reply_calls(json.dumps(body).encode()) is None


def stream(*deltas: Any, blank: bytes = b"\n\n", done: bool = True) -> list[bytes]:
    events = [
        b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + blank
        for delta in deltas
    ]
    return [*events, b"data: [DONE]" + blank] if done else events


def piece(index: int, **function: str) -> Any:
    return {"tool_calls": [{"index": index, "function": function}]}


SPEECH = [{"role": "assistant", "content": "I"}, {"content": " look"}]
CALLS = [
    piece(0, name="t", arguments=""),
    piece(1, name="u", arguments='{"y'),
    piece(0, arguments='{"x": '),
    piece(1, arguments='": []}'),
    piece(0, arguments="1}"),
    {"content": "late"},
]


@given(st.data(), st.sampled_from([b"\n\n", b"\r\n\r\n"]))
def test_a_stream_is_kept_back_from_its_first_call_however_it_is_cut(data: Any, blank: bytes) -> None:
    before, kept = stream(*SPEECH, blank=blank, done=False), stream(*CALLS, blank=blank)
    body = b": a comment" + blank + b"".join(before + kept)
    reply, passed, rest = StreamedReply(), b"", body
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        passed += reply.feed(rest[:size])
        rest = rest[size:]
    assert passed == body.removesuffix(b"".join(kept))
    assert reply.kept() == b"".join(kept)
    assert reply.calls() == [CALL, ToolCall("u", {"y": []})]
    assert reply.ended


def test_a_stream_without_calls_passes_whole() -> None:
    reply = StreamedReply()
    body = b"".join(stream(*SPEECH))
    assert reply.feed(body) + reply.kept() == body
    assert reply.calls() == []


def test_a_stream_that_stops_early_has_not_ended() -> None:
    reply = StreamedReply()
    reply.feed(b"".join(stream(*SPEECH, done=False)) + b"data: {")
    assert not reply.ended
    assert reply.kept() == b"data: {"
