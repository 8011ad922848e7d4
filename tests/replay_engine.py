"""A tiny engine over real HTTP in this process, for tests of replays: exact, or wrong on purpose."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    label: str
    prompt: list[int]
    output_tokens: int
    path: str
    body: dict[str, Any]


@dataclass
class Engine:
    """Replies with ids from 70000 up, new ones for each request, and serves `faults` first, one a request.

    A fault is a status to answer with, "drop" (the connection closes), or what to change in the answer.
    With ``hold`` set, a request waits for ``gate``.
    """

    name: str = "engine"
    owned_by: str = "sglang"
    longest_context: int | None = 100_000
    faults: deque[int | str | dict[str, Any]] = field(default_factory=deque)
    asked: list[Asked] = field(default_factory=list)
    replies: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    """By label and prompt length: what was answered."""
    flushed: int = 0
    resets: bool | None = None
    """Whether vLLM's cache can be emptied now; None where the server was not told to offer it."""
    hold: bool = False
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""
    in_flight: int = 0
    most_in_flight: int = 0
    _next: int = 70_000

    async def models(self, http: web.Request) -> web.Response:
        model = {"id": "m", "owned_by": self.owned_by}
        if self.longest_context is not None:
            model["max_model_len"] = self.longest_context  # type: ignore[assignment]
        return web.json_response({"object": "list", "data": [model]})

    async def flush(self, http: web.Request) -> web.Response:
        self.flushed += 1
        return web.Response(text="Cache flushed.")

    async def reset(self, http: web.Request) -> web.Response:
        if self.resets is None:
            raise web.HTTPNotFound
        self.flushed += self.resets
        return web.json_response({"success": self.resets})

    async def generate(self, http: web.Request) -> web.StreamResponse:
        body = await http.read()
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._answer(http, json.loads(body))
        finally:
            self.in_flight -= 1

    async def _answer(self, http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        native = http.path == "/generate"
        prompt = body["input_ids" if native else "prompt"]
        count = body["sampling_params"]["max_new_tokens"] if native else body["max_tokens"]
        label = http.headers.get("x-smg-routing-key", "")
        self.asked.append(Asked(label, prompt, count, http.path, body))
        self.arrived.set()
        fault = self.faults.popleft() if self.faults else None
        if isinstance(fault, int):
            return web.json_response({"error": {"message": f"no, {fault}"}}, status=fault)
        if fault == "drop":
            assert http.transport is not None
            http.transport.close()
            return web.Response()
        if self.hold:
            await self.gate.wait()
        reply = list(range(self._next, self._next + count))
        self._next += count
        self.replies[label, len(prompt)] = reply
        if native:
            answer: dict[str, Any] = {
                "output_ids": reply,
                "meta_info": {"prompt_tokens": len(prompt), "cached_tokens": 1, "finish_reason": None},
            }
            answer["meta_info"] |= fault or {}
        else:
            usage = {"prompt_tokens": len(prompt), "prompt_tokens_details": {"cached_tokens": 1}}
            answer = {"choices": [{"text": "", "token_ids": reply}], "usage": usage} | (fault or {})
        return web.json_response(answer)


@asynccontextmanager
async def engines(number: int, **fields: Any) -> AsyncIterator[Sequence[Engine]]:
    """Engines named e0, e1 and so on, each at its ``url``."""
    running: list[Engine] = []
    servers: list[TestServer] = []
    try:
        for place in range(number):
            engine = Engine(f"e{place}", **fields)
            app = web.Application(client_max_size=1 << 30)
            app.router.add_get("/v1/models", engine.models)
            app.router.add_post("/flush_cache", engine.flush)
            app.router.add_post("/reset_prefix_cache", engine.reset)
            app.router.add_post("/generate", engine.generate)
            app.router.add_post("/v1/completions", engine.generate)
            server = TestServer(app)
            await server.start_server()
            servers.append(server)
            engine.url = str(server.make_url("/")).rstrip("/")
            running.append(engine)
        yield running
    finally:
        for engine in running:
            engine.gate.set()
        for server in servers:
            await server.close()


@contextmanager
def engine_beside() -> Iterator[Engine]:
    """An engine in an event loop of its own, in a thread beside the test's."""
    ready = threading.Event()
    running: list[Engine] = []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with engines(1) as (one,):
            running.append(one)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait()
    try:
        yield running[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
