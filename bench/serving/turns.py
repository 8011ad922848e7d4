"""A turn of calls against one server: what each call takes, and what the server's CPU spends on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from time import perf_counter

import grpc

from bench.serving.callers import Caller
from bench.serving.servers import ServerProcess
from bench.spread import Spread, spread_of


@dataclass(frozen=True)
class Turn:
    """Calls of one turn. ``cpu_s``: of the server's threads, a call. The rest is what the client sees."""

    call_s: float
    p50_s: float
    p99_s: float
    cpu_s: float


@dataclass(frozen=True)
class Turns:
    """Median and quartiles over the turns of one server, in seconds a call."""

    call: Spread
    p50: Spread
    p99: Spread
    cpu: Spread


class LoadedServer:
    """A server, and the channel on which one client calls it. To be used with one event loop."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._channel = grpc.aio.insecure_channel(server.address)

    async def turn(self, caller: Caller, outstanding: int, calls: int) -> Turn:
        cpu, start = self._server.cpu_s(), perf_counter()
        seconds = await caller(self._channel, outstanding, calls)
        taken, cpu = perf_counter() - start, self._server.cpu_s() - cpu
        return Turn(taken / calls, median(seconds), quantiles(seconds, n=100)[98], cpu / calls)

    async def close(self) -> None:
        await self._channel.close()


async def in_turns(
    servers: Sequence[LoadedServer], caller: Caller, outstanding: int, calls: int, repeats: int
) -> list[list[Turn]]:
    """The turns of each server; every round begins with another one. A first round warms up, uncounted."""
    turns: list[list[Turn]] = [[] for _ in servers]
    for number in range(-1, repeats):
        for place in range(len(servers)):
            chosen = (number + place) % len(servers)
            turn = await servers[chosen].turn(caller, outstanding, calls)
            if number >= 0:
                turns[chosen].append(turn)
    return turns


def summarised(turns: Sequence[Turn]) -> Turns:
    return Turns(
        call=spread_of([turn.call_s for turn in turns]),
        p50=spread_of([turn.p50_s for turn in turns]),
        p99=spread_of([turn.p99_s for turn in turns]),
        cpu=spread_of([turn.cpu_s for turn in turns]),
    )
