"""Replies that a file gives instead of words: which conversation gets which, and what they are.

A file of JSON lines, each ``{"match": TEXT, "replies": [{"content": TEXT, "tool_calls": [{"name": NAME,
"arguments": {...}}]}, ...]}``. A reply has content, tool calls, or both.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec

from coresched.errors import InputError
from coresched.lab.worker.calls import ToolCall
from coresched.lab.worker.fields import Fields, shown
from coresched.lab.worker.refusal import RefusedError
from coresched.lab.worker.tokens import Tokens, encode
from coresched.trajectory.reader import read_lines


@dataclass(frozen=True)
class Part:
    """The reply's tokens from ``first`` to before ``end``, which are all of its content or a piece of a call.

    ``call`` is the number of the call, from 0.
    """

    kind: Literal["content", "opening", "arguments", "closing"]
    first: int
    end: int
    call: int = 0


@dataclass(frozen=True)
class ScriptedReply:
    """``line`` is the one in the script, from 1, and ``place`` the reply's in its list, from 0."""

    content: str
    calls: tuple[ToolCall, ...]
    line: int
    place: int

    @cached_property
    def tokens(self) -> Tokens:
        """What the next prompt holds of this reply, if it is sent back as it came."""
        return encode(self.content + "".join("".join(call.pieces) for call in self.calls))

    @cached_property
    def parts(self) -> Sequence[Part]:
        """The tokens in order."""
        return tuple(self._parts())

    def _parts(self) -> Iterator[Part]:
        end = len(encode(self.content))
        if end:
            yield Part("content", 0, end)
        for number, call in enumerate(self.calls):
            opening, arguments, closing = (len(encode(piece)) for piece in call.pieces)
            yield Part("opening", end, end + opening, number)
            yield Part("arguments", end + opening, end + opening + arguments, number)
            end += opening + arguments + closing
            yield Part("closing", end - closing, end, number)

    def __str__(self) -> str:
        return f"the scripted reply (line {self.line} of the script, replies[{self.place}])"


@dataclass(frozen=True)
class ScriptLine:
    match: str
    replies: tuple[ScriptedReply, ...]


@dataclass(frozen=True)
class Script:
    """The lines in the order of the file."""

    lines: tuple[ScriptLine, ...]

    def reply(self, task: str, turn: int) -> ScriptedReply | None:
        """The reply of turn ``turn``, from 0, of the first line whose ``match`` is in ``task``.

        After the last reply that one again; None where no line matches.
        """
        for line in self.lines:
            if line.match in task:
                return line.replies[min(turn, len(line.replies) - 1)]
        return None


def load_script(path: Path) -> Script:
    """Raises InputError, naming the file, the line, the field and the value."""
    lines = []
    for number, text in read_lines(str(path)):
        try:
            lines.append(_line(msgspec.json.decode(text), number))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(
                f"{path}, line {number}: broken JSON: {error}; every line must be one whole JSON object"
            ) from None
        except RefusedError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
    if not lines:
        raise InputError(
            f"{path} holds no replies; every line must be one JSON object with match and replies"
        )
    return Script(tuple(lines))


def _line(values: object, number: int) -> ScriptLine:
    if not isinstance(values, dict):
        raise RefusedError(f"the line must be a JSON object with match and replies, got {shown(values)}")
    line = Fields(values)
    line.only("match", "replies")
    match = line.text("match")
    if match is None:
        line.refuse("match", "a string: text of the first user message")
    replies = line.items("replies", "a list of at least one reply")
    return ScriptLine(
        match,
        tuple(
            _reply(Fields(reply, f"replies[{place}]"), number, place) for place, reply in enumerate(replies)
        ),
    )


def _reply(reply: Fields, line: int, place: int) -> ScriptedReply:
    reply.only("content", "tool_calls")
    content = reply.text("content") or ""
    calls: tuple[ToolCall, ...] = ()
    if reply.raw("tool_calls") is not None:
        given = reply.items("tool_calls", "a list of at least one call; leave it out where there is none")
        calls = tuple(
            _call(Fields(call, f"{reply.name('tool_calls')}[{number}]")) for number, call in enumerate(given)
        )
    if not content and not calls:
        reply.refuse("content", "text with something in it where the reply has no tool_calls")
    return ScriptedReply(content, calls, line, place)


def _call(call: Fields) -> ToolCall:
    call.only("name", "arguments")
    name = call.text("name")
    if not name:
        call.refuse("name", "the name of a tool")
    arguments = call.raw("arguments")
    if not isinstance(arguments, dict):
        call.refuse("arguments", "a JSON object, {} where the tool takes none")
    return ToolCall(name, msgspec.json.encode(arguments).decode())
