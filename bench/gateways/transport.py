"""The routed httpx transport: no gateway, so its cost is CPU time of the client's own process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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
    """One timing of httpx alone, asking the workers in turn, or with the transport in front of it.

    ``cpu_s`` is CPU time of this process for each request, client and transport together.
    """
    urls = [f"http://127.0.0.1:{port}" for port in workers]
    transport: httpx.AsyncBaseTransport
    if name == ROUTED:
        transport = coresched.httpx.Transport(urls)
    else:
        transport = httpx.AsyncHTTPTransport(limits=_LIMITS)
    asked = ["http://workers"] if name == ROUTED else urls
    async with httpx.AsyncClient(transport=transport, timeout=60) as client:
        await load_through(client, asked, case, seconds / 10)
        before = process_time()
        load = await load_through(client, asked, case, seconds)
        return {
            "requests_per_s": load.per_second,
            "p50_s": load.percentile(0.5),
            "p99_s": load.percentile(0.99),
            "cpu_s": (process_time() - before) / len(load.latencies),
        }


async def load_through(client: httpx.AsyncClient, asked: Sequence[str], case: Case, seconds: float) -> Load:
    """Chat completions to these servers in turn, from as many clients as the case has connections."""
    turns = cycle(_LABELS)
    bases = cycle(asked)
    content = exchange.body(stream=case.stream)
    latencies: list[float] = []
    began = perf_counter()

    async def one_by_one() -> None:
        while perf_counter() < began + seconds or not latencies:
            sent_at = perf_counter()
            headers = {ROUTING_HEADER: next(turns), "content-type": "application/json"}
            answer = await client.post(next(bases) + exchange.CHAT, content=content, headers=headers)
            answer.raise_for_status()
            latencies.append(perf_counter() - sent_at)

    await asyncio.gather(*(one_by_one() for _ in range(case.connections)))
    lasted = perf_counter() - began
    return Load(sorted(latencies), lasted)
