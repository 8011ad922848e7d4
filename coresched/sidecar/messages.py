"""The tool calls that a reply asks for, and the tool call that a request makes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

_UNREADABLE = (ValueError, RecursionError)


class ToolCall(NamedTuple):
    """Name and arguments as decoded JSON; arguments that are no JSON stay the text they are."""

    name: str
    arguments: Any


def canonical(call: ToolCall) -> str:
    """The same text for calls that differ only in the order of keys, or as 1 and 1.0 do."""
    return json.dumps([call.name, _plain(call.arguments)], sort_keys=True, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def read_arguments(given: Any) -> Any:
    """Decoded arguments from JSON text or a value; nothing at all is no arguments, `{}`."""
    if isinstance(given, str):
        if not given.strip():
            return {}
        try:
            given = json.loads(given)
            json.dumps(_plain(given))  # too deep to be compared
        except _UNREADABLE:
            return given
    return {} if given is None else given


def requested_call(body: bytes) -> ToolCall | None:
    """The call in the body of a request to a tool server; None if it is no tool call.

    One of `{"tool_name", "tool_args"}` (MCP-Atlas), `{"name", "arguments"}` and MCP's JSON-RPC
    `{"method": "tools/call", "params": {"name", "arguments"}}`.
    """
    try:
        fields = json.loads(body)
    except _UNREADABLE:
        return None
    if isinstance(fields, dict) and "method" in fields:
        fields = fields.get("params") if fields["method"] == "tools/call" else None
    if not isinstance(fields, dict):
        return None
    for name, arguments in (("tool_name", "tool_args"), ("name", "arguments")):
        if isinstance(fields.get(name), str):
            return ToolCall(fields[name], read_arguments(fields.get(arguments)))
    return None


def is_other_method(body: bytes) -> bool:
    """Whether the body is JSON-RPC that calls no tool, such as MCP's `tools/list`."""
    try:
        fields = json.loads(body)
    except _UNREADABLE:
        return False
    return isinstance(fields, dict) and "method" in fields and fields["method"] != "tools/call"


def reply_calls(body: bytes) -> list[ToolCall] | None:
    """The calls of all choices of a whole chat completion, in order; None if it is no such reply."""
    try:
        reply = json.loads(body)
        return [call for choice in reply["choices"] for call in _message_calls(choice["message"])]
    except (*_UNREADABLE, LookupError, TypeError, AttributeError):
        return None


def _message_calls(message: dict[str, Any]) -> Iterator[ToolCall]:
    functions = [call.get("function") for call in message.get("tool_calls") or ()]
    for function in (*functions, message.get("function_call")):  # the last is OpenAI's older form
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            yield ToolCall(function["name"], read_arguments(function.get("arguments")))


class StreamedReply:
    """A chat completion as server-sent events: what may go on, and what is kept back with tool calls.

    From the first event that has a piece of a tool call everything is kept, to be sent once the calls are
    known whole, or once they may be made.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._kept: list[bytes] = []
        self._calls: dict[tuple[int, Any], list[str]] = {}
        self.ended = False
        """Whether the stream said that it is complete."""

    def feed(self, piece: bytes) -> bytes:
        """Take the next piece of the body; what of it may be sent to the client now, whole events only."""
        *events, self._rest = _split(self._rest + piece)
        passed: list[bytes] = []
        for event in events:
            self._read(event)
            (self._kept if self._calls else passed).append(event)
        return b"".join(passed)

    def kept(self) -> bytes:
        """What was kept back, to the end of the body."""
        return b"".join((*self._kept, self._rest))

    def calls(self) -> list[ToolCall]:
        """The calls, once the body is at its end."""
        return [ToolCall(name, read_arguments(arguments)) for name, arguments in self._calls.values() if name]

    def _read(self, event: bytes) -> None:
        data = b"\n".join(
            line[5:].strip() for line in event.replace(b"\r", b"\n").split(b"\n") if line.startswith(b"data:")
        )
        if data == b"[DONE]":
            self.ended = True
            return
        try:
            chunk = json.loads(data)
            choices: Sequence[Any] = chunk.get("choices") or ()
            for choice in choices:
                self.ended = self.ended or choice.get("finish_reason") is not None
                self._add(choice.get("index") or 0, choice.get("delta") or {})
        except (*_UNREADABLE, AttributeError, TypeError):
            return

    def _add(self, choice: int, delta: dict[str, Any]) -> None:
        pieces = [(piece.get("index", 0), piece.get("function")) for piece in delta.get("tool_calls") or ()]
        if delta.get("function_call"):
            pieces.append((None, delta["function_call"]))
        for index, function in pieces:
            so_far = self._calls.setdefault((choice, index), ["", ""])
            so_far[0] += (function or {}).get("name") or ""
            so_far[1] += (function or {}).get("arguments") or ""


def _split(text: bytes) -> list[bytes]:
    """Whole events with the blank line that ends each, and last what is not whole yet."""
    parts: list[bytes] = []
    while True:
        ends = [(at, blank) for blank in (b"\n\n", b"\r\n\r\n", b"\r\r") if (at := text.find(blank)) >= 0]
        if not ends:
            return [*parts, text]
        at, blank = min(ends)
        parts.append(text[: at + len(blank)])
        text = text[at + len(blank) :]
