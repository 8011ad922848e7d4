"""The usage in an answer of an inference server, read from a copy of its body as that passes by.

OpenAI's chat completions, completions and responses, whole and as server-sent events, which vLLM and SGLang
speak too, and SGLang's own /generate. At most MOST_BYTES of an answer are kept.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import msgspec

MOST_BYTES: Final = 2 << 20
"""Of a whole answer, or of one event of a stream; of what is longer the usage is not known."""


class Usage(msgspec.Struct, frozen=True):
    """Counts of one answer; None for what it does not say."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    answer_id: str | None = None


class AnswerReader:
    """One answer's body, fed in pieces as they come."""

    def __init__(self, content_type: str, content_encoding: str = "") -> None:
        self.streamed = content_type.lower().startswith("text/event-stream")
        self.complete = False
        """The stream has said that it is at its end, whatever of it may still be missing."""
        self.failure: str | None = None
        """Why the answer is none, though its status is 200."""
        encoding = content_encoding.strip().lower()
        packed = encoding in ("gzip", "x-gzip", "deflate")
        self._readable = packed or encoding in ("", "identity")
        self._unpacking = zlib.decompressobj(47) if packed else None  # 47: either header
        self._rest = b""
        self._pieces: list[bytes] = []
        self._size = 0
        self._skipping = False
        self._last = b""  # the latest event with a usage in it

    def feed(self, piece: bytes) -> None:
        if not self._readable:
            return
        if self._unpacking is not None:
            try:
                piece = self._unpacking.decompress(piece, MOST_BYTES)
            except zlib.error:
                self._readable = False
                return
            if self._unpacking.unconsumed_tail:  # more than is kept
                self._readable = False
                return
        if self.streamed:
            self._feed_events(piece)
            return
        self._size += len(piece)
        if self._size > MOST_BYTES:
            self._readable = False
            self._pieces.clear()
        else:
            self._pieces.append(piece)

    def usage(self) -> Usage:
        """What there is of it by now."""
        if self.streamed:
            if self._rest and not self._skipping:
                self._event(self._rest)
                self._rest = b""
            return self._read(self._last)
        return self._read(b"".join(self._pieces) if self._readable else b"")

    def _feed_events(self, piece: bytes) -> None:
        lines = piece.split(b"\n")
        if len(lines) == 1:
            self._keep(piece)
            return
        if not self._skipping:
            self._event(self._rest + lines[0])
        for line in lines[1:-1]:
            self._event(line)
        self._rest, self._skipping = b"", False
        self._keep(lines[-1])

    def _keep(self, part: bytes) -> None:
        if self._skipping:
            return
        self._rest += part
        if len(self._rest) > MOST_BYTES:
            self._rest, self._skipping = b"", True

    def _event(self, line: bytes) -> None:
        if not line.startswith(b"data:"):
            return
        data = line[5:].strip()
        if data == b"[DONE]":
            self.complete = True
        elif data.startswith(b'{"error"'):
            self.failure = "an error instead of the rest of its stream"
        elif b'"meta_info"' in data or (b'"usage"' in data and not _says_null(data)):
            self._last = data

    def _read(self, data: bytes) -> Usage:
        if not data:
            return Usage()
        try:
            whole = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Usage()
        answer: _Response = whole
        if whole.response is not None:  # an event of OpenAI's responses
            self.complete = True
            if whole.type == "response.failed":
                self.failure = "it failed in the middle of its answer"
            answer = whole.response
        id = answer.id
        counts: _Usage | None = answer.usage
        details = None
        if answer.meta_info is not None:
            meta = answer.meta_info
            id = meta.id
            self.complete = self.complete or meta.finish_reason is not None
            if isinstance(meta.finish_reason, dict) and meta.finish_reason.get("type") == "abort":
                self.failure = "it aborted the request"
            counts = _Usage(prompt_tokens=meta.prompt_tokens, completion_tokens=meta.completion_tokens)
            cached = meta.cached_tokens
        elif counts is not None:
            details = counts.prompt_tokens_details or counts.input_tokens_details
            cached = details.cached_tokens if details is not None else None
        else:
            return Usage(answer_id=id if isinstance(id, str) else None)
        reasoning = counts.completion_tokens_details or counts.output_tokens_details
        output = counts.output_tokens if counts.completion_tokens is None else counts.completion_tokens
        prompt = counts.input_tokens if counts.prompt_tokens is None else counts.prompt_tokens
        return Usage(
            prompt_tokens=_count(prompt) or None,  # no prompt is empty
            cached_tokens=_count(cached),
            output_tokens=_count(output),
            reasoning_tokens=None if reasoning is None else _count(reasoning.reasoning_tokens),
            answer_id=id if isinstance(id, str) else None,
        )


def _says_null(data: bytes) -> bool:
    return b'"usage":null' in data or b'"usage": null' in data


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= 10**12 else None


class _Details(msgspec.Struct):
    cached_tokens: Any = None
    reasoning_tokens: Any = None


class _Usage(msgspec.Struct):
    prompt_tokens: Any = None
    completion_tokens: Any = None
    input_tokens: Any = None
    output_tokens: Any = None
    prompt_tokens_details: _Details | None = None
    input_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None


class _Meta(msgspec.Struct):
    id: Any = None
    prompt_tokens: Any = None
    cached_tokens: Any = None
    completion_tokens: Any = None
    finish_reason: Any = None


class _Response(msgspec.Struct):
    id: Any = None
    usage: _Usage | None = None
    meta_info: _Meta | None = None


class _Answer(_Response):
    type: Any = None
    response: _Response | None = None


_decode = msgspec.json.Decoder(_Answer).decode
