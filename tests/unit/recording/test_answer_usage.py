"""Usage read from answers as they pass by, in pieces of any size."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresched.recording.usage import MOST_BYTES, AnswerReader, Usage

CHAT = {
    "id": "chatcmpl-1",
    "choices": [{"message": {"content": 'it says "usage": {"prompt_tokens": 1}'}}],
    "usage": {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 7},
    },
}
RESPONSE = {
    "id": "resp-1",
    "usage": {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 64},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 7},
    },
}
META = {"id": "g-1", "prompt_tokens": 100, "cached_tokens": 64, "completion_tokens": 20}
GENERATED = {"text": "words", "meta_info": {**META, "finish_reason": {"type": "length"}}}
FOUND = Usage(100, 64, 20, 7)


def answer_id(document: Any) -> str:
    return str(document.get("id") or document["meta_info"]["id"])


def events(*documents: Any, done: bool = True) -> bytes:
    texts = [json.dumps(document) for document in documents] + (["[DONE]"] if done else [])
    return "".join(f"data: {text}\r\n\r\n" for text in texts).encode()


WHOLE = [CHAT, RESPONSE, GENERATED]
CHUNK = {"id": "chatcmpl-1", "choices": [{"delta": {"content": "x"}}], "usage": None}
STREAMS = {
    "chat": events(CHUNK, CHUNK, {"id": "chatcmpl-1", "choices": [], "usage": CHAT["usage"]}),
    "vLLM, usage in each": events({**CHUNK, "usage": {"prompt_tokens": 100, "completion_tokens": 1}}, CHAT),
    "responses": b"event: response.created\n"
    + events({"type": "response.created", "response": {"id": "resp-1", "usage": None}}, done=False)
    + events({"type": "response.completed", "response": RESPONSE}, done=False),
    "generate": events({"text": "w", "meta_info": {**META, "completion_tokens": 1}}, GENERATED),
}


@pytest.mark.parametrize("document", WHOLE, ids=answer_id)
@pytest.mark.parametrize("encoding", ["", "gzip", "deflate"])
def test_a_whole_answer(document: Any, encoding: str) -> None:
    content = json.dumps(document).encode()
    packed = {"": content, "gzip": gzip.compress(content), "deflate": zlib.compress(content)}[encoding]
    reader = AnswerReader("application/json; charset=utf-8", encoding)
    reader.feed(packed[:40])
    reader.feed(packed[40:])
    found = reader.usage()
    assert found.answer_id == answer_id(document)
    reasoning = None if document is GENERATED else 7
    assert found == Usage(100, 64, 20, reasoning, found.answer_id)
    assert reader.failure is None


@pytest.mark.parametrize("name", STREAMS)
@given(cuts=st.lists(st.integers(0, 900), max_size=12))
def test_a_stream_in_pieces_of_any_size(name: str, cuts: list[int]) -> None:
    stream = STREAMS[name]
    reader = AnswerReader("text/event-stream")
    ends = [*sorted({min(cut, len(stream)) for cut in cuts}), len(stream)]
    for start, end in zip([0, *ends], ends, strict=False):
        reader.feed(stream[start:end])
    found = reader.usage()
    assert (found.prompt_tokens, found.cached_tokens, found.output_tokens) == (100, 64, 20)
    assert reader.complete
    assert reader.failure is None


def test_a_stream_that_ends_in_an_error_is_no_answer() -> None:
    reader = AnswerReader("text/event-stream")
    reader.feed(events(CHUNK, {"error": {"message": "out of memory"}}))
    reader.usage()
    assert reader.failure == "an error instead of the rest of its stream"


def test_an_aborted_request_is_no_answer() -> None:
    reader = AnswerReader("application/json")
    reader.feed(json.dumps({"meta_info": {**META, "finish_reason": {"type": "abort"}}}).encode())
    reader.usage()
    assert reader.failure == "it aborted the request"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[1, 2]",
        b"no JSON",
        b'{"usage": 5}',
        b'{"usage": {"prompt_tokens": "many", "completion_tokens": -1}}',
        b'{"usage": {"prompt_tokens": true, "completion_tokens": 1.5}}',
        b"[" * 100_000,
        b'{"id": "\xff"}',
    ],
)
def test_what_has_no_usage_has_none(body: bytes) -> None:
    reader = AnswerReader("application/json")
    reader.feed(body)
    found = reader.usage()
    assert (found.prompt_tokens, found.cached_tokens, found.output_tokens) == (None, None, None)


def test_memory_is_bounded() -> None:
    whole = AnswerReader("application/json")
    whole.feed(b'{"x": "')
    stream = AnswerReader("text/event-stream")
    stream.feed(b"data: ")
    bomb = AnswerReader("application/json", "gzip")
    bomb.feed(gzip.compress(b" " * (4 * MOST_BYTES)))
    for _ in range(2 * MOST_BYTES >> 16):
        whole.feed(b"y" * 65536)
        stream.feed(b"y" * 65536)
    assert whole.usage() == bomb.usage() == Usage()
    assert sum(map(len, whole._pieces)) == len(stream._rest) == 0
    stream.feed(b'"\n' + events({"id": "chatcmpl-1", "usage": CHAT["usage"]}))  # the next line is read again
    assert stream.usage() == Usage(100, 64, 20, 7, "chatcmpl-1")


def test_an_encoding_that_is_not_known_is_left_alone() -> None:
    reader = AnswerReader("application/json", "br")
    reader.feed(json.dumps(CHAT).encode())
    assert reader.usage() == Usage()
    broken = AnswerReader("application/json", "gzip")
    broken.feed(b"no gzip")
    assert broken.usage() == Usage()
