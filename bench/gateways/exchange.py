"""The chat completions that every subject carries, and how a fake worker is told what to do with one.

The worker is told in fields that a gateway must pass on: a token takes a millisecond, and a completion of
more than LONGEST_TOKENS is held until the bench asks the worker to let go.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from coresched.client.local import ROUTING_HEADER

CHAT = "/v1/chat/completions"
MODEL = "bench"
LONGEST_TOKENS = 1_000_000
HELD = LONGEST_TOKENS + 1
WORKER_HEADER = "x-bench-worker"
"""An answer's header, the index of the worker that gave it."""

_BODY_BYTES = 1024
_EVENTS = 16


def body(tokens: int = 1, *, stream: bool = False) -> bytes:
    """A request of about 1 KiB."""
    fields: dict[str, object] = {"model": MODEL, "max_tokens": tokens, "stream": stream}
    empty = json.dumps(fields | {"messages": [{"role": "user", "content": ""}]})
    content = "Fix it. " * ((_BODY_BYTES - len(empty)) // 8)
    return json.dumps(fields | {"messages": [{"role": "user", "content": content}]}).encode()


def head(label: str, length: int) -> bytes:
    """The request's head, with its routing key."""
    return (
        f"POST {CHAT} HTTP/1.1\r\nHost: workers\r\nContent-Type: application/json\r\n"
        f"{ROUTING_HEADER}: {label}\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def requests(labels: Sequence[str], tokens: int = 1, *, stream: bool = False) -> list[bytes]:
    """A request for each label, as it goes over the wire."""
    sent = body(tokens, stream=stream)
    return [head(label, len(sent)) + sent for label in labels]


def answer() -> bytes:
    """A completion of about 1 KiB."""
    return json.dumps(
        {
            "id": "chatcmpl-0",
            "object": "chat.completion",
            "created": 0,
            "model": MODEL,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "Done so. " * 88},
                    "finish_reason": "stop",
                }
            ],
            "usage": {"prompt_tokens": 200, "completion_tokens": 20, "total_tokens": 220},
        }
    ).encode()


def events() -> list[bytes]:
    """The same as a stream: _EVENTS pieces and the end."""
    pieces = []
    for number in range(_EVENTS):
        choice = {
            "index": 0,
            "delta": {"content": "Done so. "},
            "finish_reason": "stop" if number == _EVENTS - 1 else None,
        }
        chunk = {
            "id": "chatcmpl-0",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": MODEL,
            "choices": [choice],
        }
        pieces.append(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    return [*pieces, b"data: [DONE]\n\n"]
