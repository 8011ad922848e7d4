"""What a request through each subject costs: in time, in CPU of the gateway, and its memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from bench.gateways import exchange
from bench.gateways.client import connections
from bench.gateways.load import closed_loop
from bench.gateways.running import Subject

_LABELS = [f"task-{number}" for number in range(200)]
_WARM_UP = 0.1  # of the time measured
_HANGS_AFTER_S = 60.0


@dataclass(frozen=True)
class Case:
    """A kind of request, and how many connections send one after another."""

    name: str
    connections: int
    stream: bool = False


CASES = (Case("chat", 1), Case("chat", 32), Case("stream", 32, stream=True))

Measures = dict[str, float]


async def measured(subject: Subject, case: Case, seconds: float) -> Measures:
    """One timing: requests a second, latencies, and the gateway's CPU time and memory if there is one."""
    requests = exchange.requests(_LABELS, stream=case.stream)
    async with connections(subject.port, case.connections) as opened:
        await closed_loop(opened, requests, seconds * _WARM_UP)
        before = 0.0 if subject.program is None else subject.program.cpu_s()
        load = await asyncio.wait_for(closed_loop(opened, requests, seconds), seconds + _HANGS_AFTER_S)
        measures = {
            "requests_per_s": load.per_second,
            "p50_s": load.percentile(0.5),
            "p99_s": load.percentile(0.99),
        }
        if subject.program is not None:
            measures["cpu_s"] = (subject.program.cpu_s() - before) / len(load.latencies)
            measures["resident_bytes"] = float(subject.program.resident_bytes())
        return measures
