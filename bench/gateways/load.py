"""A closed loop: each connection sends its next request once the answer to the last is there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from time import perf_counter

from bench.gateways.client import Connection


@dataclass(frozen=True)
class Load:
    """Latencies in seconds, ascending, and how long it all took."""

    latencies: Sequence[float]
    lasted_s: float

    @property
    def per_second(self) -> float:
        return len(self.latencies) / self.lasted_s

    def percentile(self, fraction: float) -> float:
        """The smallest latency that at least this fraction does not exceed."""
        place = -(-len(self.latencies) * fraction // 1) - 1
        return self.latencies[max(0, int(place))]


async def closed_loop(opened: Sequence[Connection], requests: Sequence[bytes], seconds: float) -> Load:
    """Send the requests in turns for that many seconds; each connection sends at least one."""
    turns = cycle(requests)
    latencies: list[float] = []
    began = perf_counter()
    until = began + seconds

    async def one_by_one(connection: Connection) -> None:
        sent_at = perf_counter()
        while True:
            await connection.send(next(turns))
            answered_at = perf_counter()
            latencies.append(answered_at - sent_at)
            if answered_at >= until:
                return
            sent_at = answered_at

    await asyncio.gather(*map(one_by_one, opened))
    lasted = perf_counter() - began
    return Load(sorted(latencies), lasted)
