"""A sidecar in this process between a client, an LLM and a tool server whose every step the test decides."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web
from gateways import CHAT, FakeWorker

from coresched.gateway.workers import Worker
from coresched.listen import TcpAddress
from coresched.sidecar.batch import BatchOptions
from coresched.sidecar.counts import Counts
from coresched.sidecar.server import RunningSidecar, Settings, running
from coresched.sidecar.terms import Terms

Calls = tuple[tuple[str, Any], ...]


@dataclass
class Ends:
    url: str
    llm: FakeWorker
    tools: FakeWorker
    sidecar: RunningSidecar
    session: aiohttp.ClientSession
    llm_server: Worker
    """The LLM as the sidecar counts what is in flight there."""
    opened: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    """A tool called with {"wait": NAME} answers once the event of that name is set."""
    statuses: list[int] = field(default_factory=list)
    """What the tool server answers to its next calls, before 200."""

    @property
    def counts(self) -> Counts:
        return self.sidecar.trajectories.counts

    def ask(self, label: str, *calls: tuple[str, Any], **fields: Any) -> asyncio.Task[dict[str, Any]]:
        """An LLM request whose reply makes these calls; the message of the reply."""

        async def asked() -> dict[str, Any]:
            body = {"messages": [{"role": "user", "content": json.dumps(calls)}], **fields}
            headers = {"Authorization": f"Bearer {label}"}
            async with self.session.post(self.url + CHAT, json=body, headers=headers) as response:
                assert response.status == 200, await response.text()
                return (await response.json())["choices"][0]["message"]

        return asyncio.create_task(asked())

    def call(
        self, name: str, arguments: Any = None, headers: dict[str, str] | None = None
    ) -> asyncio.Task[int]:
        """A tool call; the status of its answer."""

        async def called() -> int:
            body = {"tool_name": name, "tool_args": arguments or {}}
            async with self.session.post(self.url + "/call-tool", json=body, headers=headers) as response:
                await response.read()
                return response.status

        return asyncio.create_task(called())

    def state(self, label: str) -> str:
        """Of the label's latest life; empty before the first."""
        lives = [one for one in self.sidecar.trajectories.lives if one.label == label]
        return lives[-1].state if lives else ""

    def executed(self) -> list[tuple[str, str | None]]:
        """Tool calls that reached the tool server: name, and the label that the sidecar sent along."""
        return [
            (json.loads(seen.body)["tool_name"], next(iter(seen.header("x-smg-routing-key")), None))
            for seen in self.tools.seen
        ]


async def until(holds: Callable[[], bool]) -> None:
    async def held() -> None:
        while not holds():
            await asyncio.sleep(0.005)

    await asyncio.wait_for(held(), 20)


async def leave(request: asyncio.Task[Any]) -> None:
    """The client of a request closes its connection."""
    request.cancel()
    await asyncio.wait((request,))


@asynccontextmanager
async def ends(
    *,
    sample_concurrency: int = 8,
    environment_concurrency: int = 1,
    terms: Terms | None = None,
    **settings: Any,
) -> AsyncIterator[Ends]:
    """Nothing ends by itself, unless `terms` say when."""

    async def reply(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        asked = json.loads(body)
        calls = json.loads(asked["messages"][-1]["content"])
        message = {
            "role": "assistant",
            "content": "so",
            "tool_calls": [
                {"id": str(i), "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
                for i, (name, given) in enumerate(calls)
            ],
        }
        if asked.get("stream"):
            return await streamed(request, message)
        return web.json_response({"choices": [{"index": 0, "message": message}]})

    async def served(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        arguments = json.loads(body).get("tool_args") or {} if b"tool_args" in body else {}
        if "wait" in arguments:
            await started.opened[arguments["wait"]].wait()
        status = started.statuses.pop(0) if started.statuses else 200
        return web.json_response({"path": request.raw_path}, status=status)

    llm, tools = FakeWorker(reply), FakeWorker(served)
    for fake in (llm, tools):
        fake.gate.set()
        await fake.start()
    llm_server = Worker(llm.url)
    given = Settings(
        llm=llm_server,
        tools=Worker(tools.url),
        batch=BatchOptions(sample_concurrency, environment_concurrency, "fcfs"),
        terms=terms or Terms(stage_idle_s=3600, idle_s=3600, end_after_s=3600),
        **settings,
    )
    timeout = aiohttp.ClientTimeout(total=20)
    async with (
        running(given, TcpAddress("127.0.0.1", 0)) as sidecar,
        aiohttp.ClientSession(timeout=timeout) as session,
    ):
        started = Ends(f"http://{sidecar.address}", llm, tools, sidecar, session, llm_server)
        yield started
        for event in started.opened.values():
            event.set()
    for fake in (llm, tools):
        await fake.kill()


async def streamed(request: web.BaseRequest, message: dict[str, Any]) -> web.StreamResponse:
    """The message as events, each call in two pieces."""
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": message["content"]}]
    for index, call in enumerate(message["tool_calls"]):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        first = {**call, "index": index, "function": {"name": name, "arguments": arguments[:3]}}
        deltas.append({"tool_calls": [first]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": arguments[3:]}}]})
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    for chunk in chunks:
        await answer.write(b"data: %s\n\n" % json.dumps(chunk).encode())
    await answer.write(b"data: [DONE]\n\n")
    return answer
