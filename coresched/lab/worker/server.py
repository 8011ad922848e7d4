"""The engine's HTTP endpoints, from start to graceful stop."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from aiohttp import web

from coresched.core.checks import check_label
from coresched.http_server import Connection, listen, remove_socket
from coresched.lab.worker.answers import Answer, GenerateAnswer, OpenAiAnswer
from coresched.lab.worker.asked import Asked, Endpoints
from coresched.lab.worker.engine import LiveEngine
from coresched.lab.worker.fields import Fields, read_body
from coresched.lab.worker.metrics import metrics_text
from coresched.lab.worker.refusal import RefusedError, error_body
from coresched.lab.worker.request_log import Outcome, RequestLog
from coresched.lab.worker.script import Script
from coresched.listen import TcpAddress, UnixAddress

LABEL_HEADER: Final = "x-smg-routing-key"
LARGEST_BODY_BYTES: Final = 32 * 1024 * 1024
FIRST_TOKEN_HEADER: Final = "x-coresched-first-token-s"
DURATION_HEADER: Final = "x-coresched-duration-s"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WorkerEndpoints:
    """Requests over HTTP to the engine, and its replies back."""

    def __init__(
        self, engine: LiveEngine, model: str, script: Script | None, request_log: RequestLog | None
    ) -> None:
        self._engine = engine
        self._model = model
        self._request_log = request_log
        self._endpoints = Endpoints(model, engine.memory.largest_request, script)
        self._created = int(time.time())

    def application(self) -> web.Application:
        app = web.Application(client_max_size=LARGEST_BODY_BYTES, middlewares=[_errors_as_json])
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._completion)
        app.router.add_post("/generate", self._generate)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        return app

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        return await self._reply(
            http, self._endpoints.chat, lambda asked: OpenAiAnswer(asked, self._model, "chat")
        )

    async def _completion(self, http: web.Request) -> web.StreamResponse:
        return await self._reply(
            http, self._endpoints.completion, lambda asked: OpenAiAnswer(asked, self._model, "text")
        )

    async def _generate(self, http: web.Request) -> web.StreamResponse:
        return await self._reply(http, self._endpoints.generate, GenerateAnswer)

    async def _models(self, http: web.Request) -> web.Response:
        model = {
            "id": self._model,
            "object": "model",
            "created": self._created,
            "owned_by": "coresched",
            "max_model_len": self._engine.memory.largest_request,
        }
        return _json({"object": "list", "data": [model]})

    async def _health(self, http: web.Request) -> web.Response:
        return web.Response()

    async def _metrics(self, http: web.Request) -> web.Response:
        return web.Response(text=metrics_text(self._engine), content_type="text/plain")

    async def _reply(
        self,
        http: web.Request,
        read: Callable[[Fields, str | None], Asked],
        answer_of: Callable[[Asked], Answer],
    ) -> web.StreamResponse:
        arrived = time.time()
        label = http.headers.get(LABEL_HEADER)
        try:
            asked = await _asked(http, label, read)
        except (RefusedError, web.HTTPException):
            if self._request_log is not None:
                self._request_log.write(http.path, label, arrived, "refused")
            raise
        answer = answer_of(asked)
        stream: web.StreamResponse | None = None
        number = self._engine.submit(asked.request)
        try:
            if asked.stream:
                stream = await _stream(http, asked, answer)
            while not asked.request.done:
                asked.request.progress.clear()
                await asked.request.progress.wait()
        finally:
            # Nothing if the reply is done; else the client has left, and this handler was cancelled.
            self._engine.abort(number)
            if self._request_log is not None:
                outcome: Outcome = "answered" if asked.request.done else "aborted"
                self._request_log.write(http.path, label, arrived, outcome, asked)
        if stream is not None:
            await stream.write(b"".join(map(_event, answer.closing())) + b"data: [DONE]\n\n")
            await stream.write_eof()
            return stream
        return _json(
            answer.whole(),
            headers={
                FIRST_TOKEN_HEADER: repr(asked.request.first_token_s),
                DURATION_HEADER: repr(asked.request.duration_s),
            },
        )


async def _asked(http: web.Request, label: str | None, read: Callable[[Fields, str | None], Asked]) -> Asked:
    encoding = http.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise RefusedError(f"Content-Encoding is {encoding[:40]!r}; send the body as it is", status=415)
    if label is not None:
        try:
            check_label(label, LABEL_HEADER)
        except ValueError as error:
            raise RefusedError(str(error), field=LABEL_HEADER) from None
    return read(read_body(await http.read()), label)


async def _stream(http: web.Request, asked: Asked, answer: Answer) -> web.StreamResponse:
    """Sends the reply's tokens as they come, up to the last."""
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
    )
    await response.prepare(http)
    request, sent = asked.request, 0
    while not request.done or sent < request.produced:
        if sent == request.produced:
            request.progress.clear()
            await request.progress.wait()
            continue
        produced = request.produced
        chunks = answer.chunk(sent, produced)
        sent = produced
        if chunks:
            await response.write(b"".join(map(_event, chunks)))
    return response


def _event(chunk: object) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _json(body: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(body), status=status, headers=headers, content_type="application/json"
    )


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RefusedError as error:
        return _json(error_body(error.status, error.message, error.field, error.code), error.status)
    except web.HTTPRequestEntityTooLarge:
        message = f"the body must be at most {LARGEST_BODY_BYTES} bytes; send a shorter prompt"
        return _json(error_body(413, message), 413)
    except web.HTTPException as error:
        message = f"{request.method} {request.path}: {error.reason}; see docs/worker.md for the endpoints"
        return _json(error_body(error.status, message), error.status)


def _refuse(status: int, said: str) -> web.Response:
    return _json(error_body(status, said), status)


async def serve(
    engine: LiveEngine,
    model: str,
    address: TcpAddress | UnixAddress,
    *,
    grace_s: float,
    announce: Callable[[str], None],
    script: Script | None = None,
    request_log: RequestLog | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP, then let requests go on for ``grace_s`` seconds.

    ``announce`` is called with the address once it accepts connections. A second signal ends what is still
    open at once. Raises InputError if the address was taken meanwhile.
    """
    runner = web.AppRunner(
        WorkerEndpoints(engine, model, script, request_log).application(),
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=grace_s,
    )
    await runner.setup()
    connections = runner.server
    assert connections is not None, "the runner was set up"
    server, listening = await listen(lambda: Connection(connections, "worker", _refuse), address)
    signals: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, signals.put_nowait, number)
    announce(listening)
    await signals.get()
    server.close()
    remove_socket(listening)
    stopping = asyncio.create_task(runner.cleanup())
    again = asyncio.create_task(signals.get())
    await asyncio.wait((stopping, again), return_when=asyncio.FIRST_COMPLETED)
    for task in (again, stopping):
        task.cancel()
    await asyncio.gather(again, stopping, return_exceptions=True)
