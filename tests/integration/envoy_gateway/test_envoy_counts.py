"""What is in flight, by `coresched epp` beside the real Envoy: exact, however requests end."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import pytest
from envoys import Envoy, Picker, Workers
from model_workers import HEADER, ModelWorker, model_workers, serving

from bench.gateways.client import connections
from bench.gateways.exchange import CHAT, requests

REQUESTS = 10_000
CLIENTS = 32

pytestmark = [
    pytest.mark.envoy,
    pytest.mark.skipif(sys.platform != "linux", reason="its wheel is for Linux"),
]


@dataclass(frozen=True)
class Streaming:
    """Workers whose streams go on when the test says so."""

    workers: list[ModelWorker]
    picker: Picker
    envoy: Envoy

    def loads(self, worker: ModelWorker | None = None) -> dict[str, int]:
        return {one.address: int(one is worker) for one in self.workers}

    def asked(self, label: str) -> ModelWorker:
        return serving(self.workers, label)

    @asynccontextmanager
    async def answering(self, model: str, label: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The parts of a streamed answer; the client leaves with the block."""
        chat = {"model": model, "stream": True, "messages": []}
        url = f"http://127.0.0.1:{self.envoy.port}{CHAT}"
        async with (
            httpx.AsyncClient(timeout=20) as client,
            client.stream("POST", url, json=chat, headers={HEADER: label}) as answer,
        ):
            assert answer.status_code == 200
            yield answer.aiter_bytes()


@pytest.fixture(scope="module")
def streaming() -> Iterator[Streaming]:
    with model_workers(3) as workers:
        names = [worker.address for worker in workers]
        with Picker(names) as picker, Envoy(picker.address, names) as envoy:
            yield Streaming(workers, picker, envoy)


@pytest.mark.parametrize("end", ["finished", "left"])
async def test_a_stream_counts_until_it_ends(end: str, streaming: Streaming) -> None:
    async with streaming.answering("hold", end) as parts:
        assert b"Hel" in await anext(parts)
        worker = streaming.asked(end)
        await asyncio.sleep(0.3)  # a count that ends with the headers would be gone by now
        await streaming.picker.reaches(streaming.loads(worker))
        if end == "finished":
            worker.gate.set()
            assert b"[DONE]" in b"".join([part async for part in parts])
    await streaming.picker.reaches(streaming.loads())
    worker.gate.set()


async def test_a_stream_that_its_worker_breaks_off_is_cut_and_ends(streaming: Streaming) -> None:
    async with streaming.answering("break", "broken") as parts:
        with pytest.raises(httpx.RemoteProtocolError):
            async for _ in parts:
                pass
    await streaming.picker.reaches(streaming.loads())


async def test_ten_thousand_requests_leave_nothing_in_flight() -> None:
    """Plain answers, streams, and clients that leave before the answer or in the middle of their request."""
    with (
        Workers(3) as workers,
        Picker(workers.names) as picker,
        Envoy(picker.address, workers.names) as envoy,
    ):
        numbers = iter(range(REQUESTS))
        kinds = {"plain": 0, "stream": 0, "left": 0, "half": 0}

        async def client(draw: random.Random) -> None:
            async with connections(envoy.port, 1) as (connection,):
                for number in numbers:
                    (kind,) = draw.choices(list(kinds), [6, 2, 1, 1])
                    kinds[kind] += 1
                    tokens = draw.choice([1, 1, 1, 5])
                    (request,) = requests([f"task-{number % 200}"], tokens, stream=kind == "stream")
                    if kind in ("plain", "stream"):
                        assert await connection.send(request) in range(3)
                        continue
                    _, writer = await asyncio.open_connection("127.0.0.1", envoy.port)
                    writer.write(request if kind == "left" else request[:-100])
                    await asyncio.sleep(draw.choice([0, 0.001, 0.004]))
                    writer.transport.abort()

        await asyncio.gather(*(client(random.Random(number)) for number in range(CLIENTS)))
        await picker.reaches(dict.fromkeys(workers.names, 0))
        assert sum(kinds.values()) == REQUESTS
        assert min(kinds.values()) > 500, kinds
