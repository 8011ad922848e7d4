"""A harness that speaks to its LLM and its tools as MCP-Atlas does, with the same traps.

A key of its own for each task, and nothing of the task in a tool call. A tool timeout that races the request
and does not abort it. LLM requests are made again after 429 (5 times), and after 5xx or a timeout (3 times).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiohttp

T = TypeVar("T")


@dataclass
class AtlasClient:
    """`parallel`: the calls of a message at once, else one by one. `tool_tries`: of a call that failed."""

    llm_url: str
    tools_url: str
    concurrency: int
    tool_timeout_s: float = 60.0
    llm_timeout_s: float = 600.0
    parallel: bool = False
    stream: bool = False
    tool_tries: int = 1
    retry_s: float = 0.05
    abandons: Sequence[str] = ()
    """Tools whose calls this harness never makes."""
    timed_out: int = field(default=0, init=False)
    """Tool calls that it gave up."""
    makespan_s: float = field(default=0.0, init=False)
    _given_up: set[asyncio.Task[Any]] = field(default_factory=set, init=False)

    async def run(self, tasks: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """The whole conversation of each task; a task's prompt and key are its name."""
        slots = asyncio.Semaphore(self.concurrency)
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(limit=0)
        began = time.monotonic()
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:

            async def one(task: str) -> list[dict[str, Any]]:
                async with slots:
                    return await self._agent(session, task)

            conversations = await asyncio.gather(*map(one, tasks))
            self.makespan_s = time.monotonic() - began
            for request in self._given_up:
                request.cancel()
            await asyncio.gather(*self._given_up, return_exceptions=True)
        return dict(zip(tasks, conversations, strict=True))

    async def _agent(self, session: aiohttp.ClientSession, task: str) -> list[dict[str, Any]]:
        async with session.post(f"{self.tools_url}/list-tools") as response:
            tools = [
                {"type": "function", "function": {"name": tool["name"], "parameters": tool["inputSchema"]}}
                for tool in await response.json()
            ]
        messages: list[dict[str, Any]] = [{"role": "user", "content": f"Do {task}."}]
        while True:
            message = await self._completion(session, task, messages, tools)
            messages.append(message)
            calls = message.get("tool_calls") or []
            if not calls:
                return messages
            if self.parallel:
                answers = await asyncio.gather(*(self._answer(session, call) for call in calls))
            else:
                answers = [await self._answer(session, call) for call in calls]
            messages += answers

    async def _completion(
        self, session: aiohttp.ClientSession, task: str, messages: list[Any], tools: list[Any]
    ) -> dict[str, Any]:
        body = {"model": "m", "messages": messages, "tools": tools, "stream": self.stream}
        failures = {429: 0, 500: 0}
        while True:
            try:
                async with session.post(
                    f"{self.llm_url}/v1/chat/completions",
                    json=body,
                    headers={"Authorization": f"Bearer {task}"},
                    timeout=aiohttp.ClientTimeout(total=self.llm_timeout_s),
                ) as response:
                    if response.status == 200:
                        return await (_streamed(response) if self.stream else _whole(response))
                    kind = 429 if response.status == 429 else 500
                    assert response.status in (429, 500, 502, 503), await response.text()
            except asyncio.TimeoutError:
                kind = 500
            failures[kind] += 1
            assert failures[kind] < (6 if kind == 429 else 3), failures
            await asyncio.sleep(self.retry_s)

    async def _answer(self, session: aiohttp.ClientSession, call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        text = "the harness did not make this call"
        if function["name"] not in self.abandons:
            for _ in range(self.tool_tries):
                text, good = await self._tool(session, function["name"], json.loads(function["arguments"]))
                if good:
                    break
                await asyncio.sleep(self.retry_s)
        return {"role": "tool", "tool_call_id": call["id"], "content": text}

    async def _tool(
        self, session: aiohttp.ClientSession, name: str, arguments: dict[str, Any]
    ) -> tuple[str, bool]:
        if name == "museum":
            arguments["returnImage"] = False  # as MCP-Atlas does with one tool

        async def posted() -> tuple[str, bool]:
            body = {"tool_name": name, "tool_args": arguments}
            async with session.post(f"{self.tools_url}/call-tool", json=body) as response:
                return await response.text(), response.status == 200

        request = asyncio.create_task(posted())
        done, _ = await asyncio.wait((request,), timeout=self.tool_timeout_s)
        if not done:
            self.timed_out += 1
            self._given_up.add(request)  # it goes on
            return f"Tool call timed out after {self.tool_timeout_s:g}s", False
        return request.result()


async def _whole(response: aiohttp.ClientResponse) -> dict[str, Any]:
    message = (await response.json())["choices"][0]["message"]
    return {name: value for name, value in message.items() if value is not None}


async def _streamed(response: aiohttp.ClientResponse) -> dict[str, Any]:
    content, calls = "", {}
    async for line in response.content:
        if not line.startswith(b"data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            content += choice["delta"].get("content") or ""
            for piece in choice["delta"].get("tool_calls") or ():
                call = calls.setdefault(
                    piece["index"], {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
                )
                call["id"] += piece.get("id") or ""
                for name in ("name", "arguments"):
                    call["function"][name] += piece["function"].get(name) or ""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    return {**message, "tool_calls": [calls[index] for index in sorted(calls)]} if calls else message
