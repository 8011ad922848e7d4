"""One SGLang server under --schedule-policy routing-prefix, treated as clients treat servers on a bad day.

After each test the server must answer a plain request with exactly the tokens asked for, at once.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from integration.sglang_engine.servers import RUNNING_REQUESTS, EngineServer

pytestmark = [pytest.mark.sglang, pytest.mark.by_hand]

LABELS = 10_000
EVENTUALLY_S = 60.0

Answer = tuple[int, Any]


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
        async with self.session.get(f"{self.server.url}/metrics") as response:
            lines = (await response.text()).splitlines()
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if re.match(rf"{re.escape(name)}[{{ ]", line) and all(pair in line for pair in wanted)
        )

    async def admitted(self) -> dict[str, float]:
        """Requests admitted so far, by whether their label was in the label set."""
        name = "coresched_prefix_admitted_total"
        return {kind: await self.metric(name, label=kind) for kind in ("hit", "miss", "none")}

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


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async def poll() -> None:
        while not await condition():
            await asyncio.sleep(0.1)

    await asyncio.wait_for(poll(), EVENTUALLY_S)


def check(answer: Answer, prompt: int, output: int) -> None:
    status, body = answer
    assert status == 200, body
    meta = body["meta_info"]
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (prompt, output)
    assert len(body["output_ids"]) == output
    assert meta["finish_reason"]["type"] == "length"


@pytest_asyncio.fixture
async def client(routing_prefix_server: EngineServer) -> AsyncIterator[Client]:
    # A server drops connections that were idle for 5 s; none is used again so.
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=2)
    timeout = aiohttp.ClientTimeout(total=100)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, max_field_size=1 << 21) as session:
        made = Client(routing_prefix_server, session)
        yield made
        await eventually(made.idle)
        check(await made.generate(9, 3, routing_key="after"), 9, 3)
        assert routing_prefix_server.process.poll() is None


def batch(
    client: Client, prefix: str, output: int, requests: int = 2 * RUNNING_REQUESTS
) -> list[asyncio.Task[Answer]]:
    """More requests than run at once, so that some run and some wait."""
    return [
        asyncio.create_task(
            client.generate(64, output, rid=f"{prefix}-{number:02}-", routing_key=f"{prefix}-{number}")
        )
        for number in range(requests)
    ]


async def test_clients_that_leave_take_their_requests_with_them(client: Client) -> None:
    before = await client.metric("sglang:num_aborted_requests_total")
    leaving = batch(client, "leaving", 4_000)
    await eventually(client.some_wait)
    for task in leaving:
        task.cancel()
    await asyncio.gather(*leaving, return_exceptions=True)
    staying = await asyncio.gather(*batch(client, "staying", 5))
    for answer in staying:
        check(answer, 64, 5)

    async def all_aborted() -> bool:
        return await client.metric("sglang:num_aborted_requests_total") == before + len(leaving)

    await eventually(all_aborted)


async def test_aborted_requests_end_and_the_others_do_not(client: Client) -> None:
    tasks = batch(client, "abort", 300)
    await eventually(client.some_wait)
    aborted = {0, 5, 2 * RUNNING_REQUESTS - 1}  # the first run, the last waits
    for number in aborted:
        assert (await client.post("/abort_request", {"rid": f"abort-{number:02}-"}))[0] == 200
    for number, answer in enumerate(await asyncio.gather(*tasks)):
        if number not in aborted:
            check(answer, 64, 300)
            continue
        _, body = answer
        assert body["meta_info"]["finish_reason"]["type"] == "abort", (number, answer)
        assert body["meta_info"]["completion_tokens"] < 300


async def test_all_can_be_aborted(client: Client) -> None:
    tasks = batch(client, "all", 4_000)
    await eventually(client.some_wait)
    assert (await client.post("/abort_request", {"rid": "", "abort_all": True}))[0] == 200
    for _, body in await asyncio.gather(*tasks):
        assert body["meta_info"]["finish_reason"]["type"] == "abort"


async def test_the_cache_is_flushed_when_idle_and_only_then(client: Client) -> None:
    prompt = client.prompt(1_000)
    check(await client.generate(prompt, 2, routing_key="flush"), 1_000, 2)
    _, again = await client.generate(prompt, 2, routing_key="flush")
    assert again["meta_info"]["cached_tokens"] > 0
    tasks = batch(client, "busy", 300)
    await eventually(client.some_wait)
    assert (await client.post("/flush_cache"))[0] == 400
    for answer in await asyncio.gather(*tasks):
        check(answer, 64, 300)
    await eventually(client.idle)
    assert (await client.post("/flush_cache"))[0] == 200
    _, cold = await client.generate(prompt, 2, routing_key="flush")
    assert cold["meta_info"]["cached_tokens"] == 0


async def test_requests_retracted_for_memory_are_answered_in_full(client: Client) -> None:
    before = await client.metric("sglang:num_retracted_requests_total")
    tasks = [
        asyncio.create_task(client.generate(200, 1_200, routing_key=f"large-{number % 10}"))
        for number in range(RUNNING_REQUESTS)
    ]
    for answer in await asyncio.gather(*tasks):
        check(answer, 200, 1_200)
    assert await client.metric("sglang:num_retracted_requests_total") > before


async def test_ten_thousand_labels(client: Client) -> None:
    before = await client.admitted()
    places = asyncio.Semaphore(4 * RUNNING_REQUESTS)

    async def one(number: int) -> None:
        async with places:
            check(await client.generate(4, 1, routing_key=f"label-{number}"), 4, 1)

    await asyncio.gather(*(one(number) for number in range(LABELS)))
    after = await client.admitted()
    assert after["miss"] - before["miss"] == LABELS
    assert after["hit"] == before["hit"]


LONGEST_LABEL = 512
UNUSUAL = ("tab\t", "line\nbreak", "\x00", " ", "\N{GRINNING FACE}", "x" * LONGEST_LABEL)
TOO_LONG = ("x" * (LONGEST_LABEL + 1), "x" * 1_000_000)


async def counted(client: Client, send: Callable[[], Awaitable[object]]) -> dict[str, float]:
    """What ``send`` adds to the counters of admissions and of refused labels; only what changed."""
    refused = "coresched_prefix_refused_labels_total"
    before = {**await client.admitted(), "refused": await client.metric(refused)}
    await send()
    after = {**await client.admitted(), "refused": await client.metric(refused)}
    return {kind: after[kind] - before[kind] for kind in after if after[kind] != before[kind]}


@pytest.mark.parametrize(
    ("labels", "added"),
    [
        (UNUSUAL, {"miss": 6}),
        (UNUSUAL, {"hit": 6}),
        (TOO_LONG, {"none": 2, "refused": 2}),
        ((None, ""), {"none": 2}),
    ],
)
async def test_labels_in_bodies(client: Client, labels: tuple[str | None], added: dict[str, float]) -> None:
    async def send() -> None:
        for label in labels:
            check(await client.generate(20, 2, routing_key=label), 20, 2)

    assert await counted(client, send) == added


@pytest.mark.parametrize("label", [5, True, ["a"], {"a": 1}])
async def test_labels_of_another_type_are_refused_by_name(client: Client, label: object) -> None:
    status, body = await client.generate(20, 2, routing_key=label)
    assert status == 400
    assert "routing_key" in body["message"]


@pytest.mark.parametrize(
    ("headers", "added"),
    [
        ({"x-smg-routing-key": "of a chat"}, {"miss": 1}),
        ({"X-SMG-Routing-Key": "of a chat"}, {"hit": 1}),
        ({"x-smg-routing-key": "h" * 1_000_000}, {"none": 1, "refused": 1}),
        ({"x-smg-routing-key": ""}, {"none": 1}),
        ({}, {"none": 1}),
    ],
)
async def test_labels_in_headers(client: Client, headers: dict[str, str], added: dict[str, float]) -> None:
    async def send() -> None:
        status, body = await client.chat(headers)
        assert status == 200, body
        assert body["usage"]["completion_tokens"] == 3

    assert await counted(client, send) == added
