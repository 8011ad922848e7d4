"""A client of one SGLang server: its requests, its metrics, its load."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import aiohttp
from integration.sglang_engine.servers import EngineServer

EVENTUALLY_S = 60.0

Answer = tuple[int, Any]

COUNTED = ("passes", "queries", "seconds", "order_changes", "refused_labels")
"""Counters of routing-prefix beside those of its admissions."""


class Client:
    """Requests of token ids to one server; each prompt is unlike the ones before, unless given."""

    def __init__(self, server: EngineServer, session: aiohttp.ClientSession) -> None:
        self.server, self.session = server, session
        self._numbers = count(1)

    def prompt(self, tokens: int) -> list[int]:
        number = next(self._numbers)
        return [number // 250 % 250, number % 250, *([7] * tokens)][:tokens]

    async def generate(
        self, prompt: int | list[int] = 8, output: int = 2, *, rid: str | None = None, **fields: Any
    ) -> Answer:
        """Status and decoded answer of /generate."""
        body = {
            "input_ids": self.prompt(prompt) if isinstance(prompt, int) else prompt,
            "sampling_params": {"max_new_tokens": output},
            **({} if rid is None else {"rid": rid}),
            **fields,
        }
        return await self.post("/generate", body)

    async def chat(self, headers: dict[str, str]) -> Answer:
        body = {"model": "x", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
        return await self.post("/v1/chat/completions", body, headers)

    async def post(self, path: str, body: object = None, headers: dict[str, str] | None = None) -> Answer:
        async with self.session.post(self.server.url + path, json=body, headers=headers) as response:
            text = await response.text()
        return response.status, json.loads(text) if text.startswith(("{", "[")) else text

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels; 0 where it has none yet."""
        return total(await self._metrics(), name, **labels)

    async def counters(self) -> dict[str, float]:
        """Those of routing-prefix so far: ``hit``, ``miss`` and ``none`` are admissions by their label."""
        text = await self._metrics()
        admitted = "coresched_prefix_admitted_total"
        return {kind: total(text, admitted, label=kind) for kind in ("hit", "miss", "none")} | {
            name: total(text, f"coresched_prefix_{name}_total") for name in COUNTED
        }

    async def _metrics(self) -> str:
        async with self.session.get(f"{self.server.url}/metrics") as response:
            return await response.text()

    async def load(self) -> tuple[int, int]:
        """Requests that run and that wait."""
        async with self.session.get(f"{self.server.url}/v1/loads") as response:
            loads = (await response.json())["loads"]
        return (
            sum(load["num_running_reqs"] for load in loads),
            sum(load["num_waiting_reqs"] for load in loads),
        )

    async def idle(self) -> bool:
        return await self.load() == (0, 0)

    async def some_wait(self) -> bool:
        running, waiting = await self.load()
        return running > 0 and waiting > 0


def total(metrics: str, name: str, **labels: str) -> float:
    """The sum of the samples of ``name`` that have these labels, in Prometheus's text format."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    return sum(
        float(line.rpartition(" ")[2])
        for line in metrics.splitlines()
        if re.match(rf"{re.escape(name)}[{{ ]", line) and all(pair in line for pair in wanted)
    )


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async def poll() -> None:
        while not await condition():
            await asyncio.sleep(0.1)

    await asyncio.wait_for(poll(), EVENTUALLY_S)


def check(answer: Answer, prompt: int, output: int) -> dict[str, Any]:
    """What /generate says beside the tokens, which must be as many as these."""
    status, body = answer
    assert status == 200, body
    meta: dict[str, Any] = body["meta_info"]
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (prompt, output), meta
    assert len(body["output_ids"]) == output
    assert meta["finish_reason"]["type"] == "length", meta
    return meta
