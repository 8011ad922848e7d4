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
        programs = [program for program in (subject.program, subject.beside) if program is not None]
        before = [program.cpu_s() for program in programs]
        load = await asyncio.wait_for(closed_loop(opened, requests, seconds), seconds + _HANGS_AFTER_S)
        measures = {
            "requests_per_s": load.per_second,
            "p50_s": load.percentile(0.5),
            "p99_s": load.percentile(0.99),
        }
        if programs:
            after = [program.cpu_s() for program in programs]
            costs = [(end - start) / len(load.latencies) for start, end in zip(before, after, strict=True)]
            measures["cpu_s"] = sum(costs)
            if subject.beside is not None:
                measures["beside_cpu_s"] = costs[1]
            measures["resident_bytes"] = float(sum(program.resident_bytes() for program in programs))
        return measures
