"""An OpenAI endpoint whose first answer to each label is an error, at two addresses."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_SUBMIT = {"name": "bash", "arguments": json.dumps({"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"})}
_MESSAGE = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "call_1", "type": "function", "function": _SUBMIT}],
}
_ANSWER = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": _MESSAGE, "finish_reason": "tool_calls"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
}


@dataclass
class Attempts:
    """`refused` is the label that is refused for good. `seen` has label, port and time of each request."""

    refused: str
    seen: list[tuple[str | None, int, float]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, label: str | None, port: int) -> tuple[int, dict[str, Any]]:
        with self.lock:
            first = label not in [before for before, _, _ in self.seen]
            self.seen.append((label, port, time.time()))
        if label == self.refused or first:
            return (400 if label == self.refused else 503), {"error": {"message": "not now", "type": "none"}}
        return 200, _ANSWER


@contextmanager
def answering(attempts: Attempts) -> Iterator[list[str]]:
    """The two URLs."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            port = int(self.server.server_address[1])
            status, body = attempts.answer(self.headers.get("x-smg-routing-key"), port)
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield [f"http://127.0.0.1:{server.server_address[1]}" for server in servers]
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
