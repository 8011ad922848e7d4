"""Whose request it is: the trajectory label, from a header, from a body field or from how the body begins.

The label of the body's beginning is the same for every turn of a trajectory, because a later turn only adds
to what an earlier one began with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NoReturn

import msgspec
from multidict import CIMultiDictProxy, istr

from coresched.core.checks import check_label
from coresched.gateway.refusal import RefusedError, shown

ROUTING_HEADER = istr("x-smg-routing-key")  # of the SGLang Model Gateway; SGLang's workers read it too

SESSION_HEADER = istr("x-session-id")  # vLLM's workers read it, and drop the other

LABEL_HEADERS = (ROUTING_HEADER, SESSION_HEADER)

_WHERE = {name: f"header {name}" for name in LABEL_HEADERS}

LABEL_FIELDS = ("routing_key", "session_id", "prompt_cache_key")
"""What SGLang, vLLM and OpenAI call it. Not `user`: all of a batch may have one user, and so one home."""

PROMPT_BYTES = 4096
"""How much of a plain prompt makes the label, in bytes of the body's JSON text."""

_CONTROL_CHARACTERS = re.compile("[\\x00-\\x1f\\x7f]")

_SURROGATES = re.compile("[\\ud800-\\udfff]")  # stand for bytes that are no UTF-8

_PROMPTS = {"/v1/completions": ("prompt",), "/generate": ("text", "input_ids")}


_NOTHING = msgspec.Raw(b"")


class _Message(msgspec.Struct, gc=False):
    role: str = ""
    content: msgspec.Raw = _NOTHING


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_messages = msgspec.json.Decoder(list[_Message])


def header_label(headers: CIMultiDictProxy[str]) -> str | None:
    """The label that a header gives, or None. Raises RefusedError (400) if it is no label."""
    for name in LABEL_HEADERS:
        value = headers.get(name)
        if value is not None:
            if len(headers.getall(name)) > 1:
                _refuse(_WHERE[name], str(name), f"must be given once, got {shown(value)} and another")
            return checked_label(value, _WHERE[name], str(name))
    return None


def body_label(path: str, body: bytes, names: Sequence[str]) -> str:
    """The label of a request without a label header: a top-level field of these names, else its beginning.

    A body that cannot be read as JSON is known by its first PROMPT_BYTES bytes; what is wrong with it is for
    the worker to say. Raises RefusedError (400) if one of the fields is there, not null, and no label.
    """
    try:
        fields = _fields.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _hashed((body[:PROMPT_BYTES],))
    for name in names:
        if name in fields:
            where = f"body field {name!r}"
            try:
                value = msgspec.json.decode(fields[name])
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                _refuse(where, name, f"must be a string, got what cannot be read: {error}")
            if isinstance(value, str):
                return checked_label(value, where, name)
            if value is not None:
                _refuse(where, name, f"must be a string, got a JSON value of type {type(value).__name__}")
    try:
        return _hashed(_beginning(path, fields))
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError):
        return _hashed((body[:PROMPT_BYTES],))


def _beginning(path: str, fields: dict[str, msgspec.Raw]) -> Iterable[bytes]:
    """What all turns have in common. Raises LookupError if the body has none of it."""
    if path == "/v1/chat/completions":
        return _first_messages(fields["messages"])
    if path == "/v1/responses":
        given = fields["input"]
        instructions = bytes(fields.get("instructions", _NOTHING))
        if bytes(memoryview(given)[:1]) == b'"':
            return (instructions, _start(given))
        return (instructions, *_first_messages(given))
    for name in _PROMPTS[path]:
        if name in fields:
            return (_start(fields[name]),)
    raise LookupError(path)


def _start(prompt: msgspec.Raw) -> bytes:
    return bytes(memoryview(prompt)[:PROMPT_BYTES])


def _first_messages(raw: msgspec.Raw) -> list[bytes]:
    """Role and content of the messages up to the first of the user; of the first alone if there is none."""
    messages = _messages.decode(raw)
    roles = [message.role for message in messages]
    last = roles.index("user") if "user" in roles else 0
    beginning = messages[: last + 1]
    return [part for message in beginning for part in (message.role.encode(), bytes(message.content))]


def _hashed(parts: Iterable[bytes]) -> str:
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return f"content-{digest.hexdigest()}"


def checked_label(value: str, where: str, param: str) -> str:
    """The label without the blanks around it. Raises RefusedError (400) if it is none."""
    value = value.strip(" \t")  # as a header, in which the worker gets it, would lose them
    if not value.isascii() and _SURROGATES.search(value):
        _refuse(where, param, f"must be UTF-8, got {shown(value)}")
    if _CONTROL_CHARACTERS.search(value):
        _refuse(where, param, f"must have no control characters, got {shown(value)}")
    try:
        return check_label(value, where)
    except ValueError as error:
        _refuse("", param, str(error))


def _refuse(where: str, param: str, what: str) -> NoReturn:
    raise RefusedError(
        400,
        "invalid_label",
        f"{where} {what}; send 1 to 512 bytes of UTF-8, or leave it out".lstrip(),
        param=param,
    )
