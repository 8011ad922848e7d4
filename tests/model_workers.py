"""Model workers over real HTTP, for tests: enough of an OpenAI server for chat completions."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HEADER = "x-smg-routing-key"
PATIENCE_S = 20.0
PARTS = ["Hel", "lo ", "you"]


@dataclass(frozen=True)
class Seen:
    """One request as a worker got it."""

    worker: str
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def label(self) -> str | None:
        return self.headers.get(HEADER)


class ModelWorker:
    """One worker. What it does is the request's `model`: "say", "hold" (its reply stops after the headers or,
    when streaming, the first part until `gate` is set), "break" (closes the connection there), "fail" (500),
    or "go URL" (303)."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.gate = threading.Event()
        self.failures = 0  # so many of the next requests are answered with 500, whatever they ask
        worker = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                worker.answer(self)

            do_GET = do_POST

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"127.0.0.1:{self.server.server_port}"
        self.url = f"http://{self.address}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def labels(self) -> list[str | None]:
        return [seen.label for seen in self.seen]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.seen.append(Seen(self.url, handler.command, handler.path, headers, body))
        asked = json.loads(body) if body else {}
        model = asked.get("model", "say")
        if self.failures:
            self.failures -= 1
            model = "fail"
        if model.startswith("go "):
            self._send(handler, 303, b"", {"Location": model[3:]})
        elif model == "fail":
            self._send(handler, 500, b'{"error": {"message": "out of memory"}}', {})
        elif asked.get("stream"):
            self._stream(handler, model)
        else:
            content = json.dumps(_completion("".join(PARTS))).encode()
            self._send(handler, 200, content, {"Content-Type": "application/json"}, model)

    def _send(
        self,
        handler: BaseHTTPRequestHandler,
        status: int,
        content: bytes,
        headers: dict[str, str],
        model: str = "",
    ) -> None:
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.flush()
        if self._goes_on(handler, model):
            _write(handler, content)

    def _stream(self, handler: BaseHTTPRequestHandler, model: str) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for number, part in enumerate(PARTS):
            _chunk(handler, b"data: " + json.dumps(_delta(part)).encode() + b"\n\n")
            if number == 0 and not self._goes_on(handler, model):
                return
        _chunk(handler, b"data: [DONE]\n\n")
        _chunk(handler, b"")

    def _goes_on(self, handler: BaseHTTPRequestHandler, model: str) -> bool:
        if model == "hold":
            self.gate.wait(PATIENCE_S)
        if model == "break":
            handler.close_connection = True
            return False
        return True

    def close(self) -> None:
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()


def _chunk(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    _write(handler, b"%x\r\n%s\r\n" % (len(content), content))


def _write(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    try:
        handler.wfile.write(content)
        handler.wfile.flush()
    except OSError:  # the client has gone
        handler.close_connection = True


def _completion(text: str) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    return {"id": "c", "object": "chat.completion", "created": 0, "model": "say", "choices": [choice]}


def _delta(text: str) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": None, "delta": {"content": text}}
    return {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "say", "choices": [choice]}


@contextmanager
def model_workers(number: int) -> Iterator[list[ModelWorker]]:
    with ExitStack() as stack:
        workers = []
        for _ in range(number):
            worker = ModelWorker()
            stack.callback(worker.close)
            workers.append(worker)
        yield workers


@contextmanager
def refusing() -> Iterator[str]:
    """The URL of a port that refuses connections and that nobody else can take meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def serving(workers: list[ModelWorker], label: str) -> ModelWorker:
    """The one worker that has seen this label."""
    (found,) = [worker for worker in workers if label in worker.labels()]
    return found
