"""The routed httpx transport: no gateway, so its cost is CPU time of the client's own process."""

from __future__ import annotations

import asyncio
from itertools import cycle
from time import perf_counter, process_time

import httpx

import coresched.httpx
from bench.gateways import exchange
from bench.gateways.load import Load
from bench.gateways.overhead import Case, Measures
from coresched.client.local import ROUTING_HEADER

PLAIN = "httpx"
ROUTED = "httpx, routed"

_LABELS = [f"task-{number}" for number in range(200)]
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=None)


async def measured(name: str, workers: list[int], case: Case, seconds: float) -> Measures:
    """One timing of httpx alone, to one worker, or with the transport in front of it, to all of them.

    ``cpu_s`` is CPU time of this process for each request, client and transport together.
    """
    urls = [f"http://127.0.0.1:{port}" for port in workers]
    transport: httpx.AsyncBaseTransport
    if name == ROUTED:
        transport = coresched.httpx.Transport(urls)
    else:
        transport = httpx.AsyncHTTPTransport(limits=_LIMITS)
    async with httpx.AsyncClient(transport=transport, base_url=urls[0], timeout=60) as client:
        await _load(client, case, seconds / 10)
        before = process_time()
        load = await _load(client, case, seconds)
        return {
            "requests_per_s": load.per_second,
            "p50_s": load.percentile(0.5),
            "p99_s": load.percentile(0.99),
            "cpu_s": (process_time() - before) / len(load.latencies),
        }


async def _load(client: httpx.AsyncClient, case: Case, seconds: float) -> Load:
    turns = cycle(_LABELS)
    content = exchange.body(stream=case.stream)
    latencies: list[float] = []
    began = perf_counter()

    async def one_by_one() -> None:
        while perf_counter() < began + seconds or not latencies:
            sent_at = perf_counter()
            headers = {ROUTING_HEADER: next(turns), "content-type": "application/json"}
            answer = await client.post(exchange.CHAT, content=content, headers=headers)
            answer.raise_for_status()
            latencies.append(perf_counter() - sent_at)

    await asyncio.gather(*(one_by_one() for _ in range(case.connections)))
    lasted = perf_counter() - began
    return Load(sorted(latencies), lasted)
