"""What is in flight, by `coresched epp` beside the real Envoy: exact, however requests end."""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass

import httpx
import pytest
from envoys import Envoy, Picker, Workers
from model_workers import HEADER, ModelWorker, model_workers, serving

from bench.gateways.client import UnexpectedAnswerError, connections
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
    async def answering(self, label: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The parts of a streamed answer; the client leaves with the block."""
        chat = {"model": "hold", "stream": True, "messages": []}
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
    for worker in streaming.workers:
        worker.gate.clear()
    async with streaming.answering(end) as parts:
        assert b"Hel" in await anext(parts)
        worker = streaming.asked(end)
        await asyncio.sleep(0.3)  # a count that ends with the headers would be gone by now
        await streaming.picker.reaches(streaming.loads(worker))
        if end == "finished":
            worker.gate.set()
            assert b"[DONE]" in b"".join([part async for part in parts])
    await streaming.picker.reaches(streaming.loads())
    worker.gate.set()


async def test_a_stream_that_its_worker_breaks_off_is_cut_and_ends() -> None:
    broken = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.readuntil(b"\r\n\r\n")).startswith(b"POST"):
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nHel\r\n")
            await broken.wait()
            writer.transport.abort()
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    name = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with ExitStack() as stack:
        picker = stack.enter_context(await asyncio.to_thread(Picker, [name]))
        envoy = stack.enter_context(await asyncio.to_thread(Envoy, picker.address, [name]))
        url = f"http://127.0.0.1:{envoy.port}{CHAT}"
        async with httpx.AsyncClient(timeout=20) as client, client.stream("POST", url, json={}) as answer:
            parts = answer.aiter_bytes()
            assert await anext(parts) == b"Hel"
            await picker.reaches({name: 1})
            broken.set()
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(parts)
        await picker.reaches({name: 0})
    server.close()


async def test_ten_thousand_requests_and_a_killed_worker_leave_nothing_in_flight() -> None:
    """Plain answers, streams, clients that leave before the answer or in the middle of their request.

    A worker is killed halfway. No client loses an answer that had not begun; a stream that had is cut.
    """
    with ExitStack() as stack:
        workers = [stack.enter_context(Workers(1)) for _ in range(3)]
        names = [name for worker in workers for name in worker.names]
        picker = stack.enter_context(Picker(names))
        envoy = stack.enter_context(Envoy(picker.address, names))
        numbers = iter(range(REQUESTS))
        ends: Counter[str] = Counter()

        async def client(draw: random.Random) -> None:
            while await some(draw):
                ends["cut"] += 1

        async def some(draw: random.Random) -> bool:
            """Whether the connection was cut; else there are no more requests."""
            async with connections(envoy.port, 1) as (connection,):
                for number in numbers:
                    if number == REQUESTS // 2:
                        workers[0].kill()
                    (kind,) = draw.choices(["plain", "stream", "left", "half"], [6, 2, 1, 1])
                    # Who leaves does so before the answer, and before or after Envoy has asked the picker.
                    tokens = draw.choice([1, 1, 1, 5]) if kind in ("plain", "stream") else 200
                    (request,) = requests([f"task-{number % 200}"], tokens, stream=kind == "stream")
                    try:
                        if kind in ("plain", "stream"):
                            await connection.send(request)
                        else:
                            await leave(request if kind == "left" else request[:-100], draw)
                    except UnexpectedAnswerError:
                        if kind != "stream":
                            raise
                        return True
                    ends[kind] += 1
            return False

        async def leave(sent: bytes, draw: random.Random) -> None:
            _, writer = await asyncio.open_connection("127.0.0.1", envoy.port)
            writer.write(sent)
            # The longest is enough for Envoy to have asked the picker, on a busy machine as well.
            await asyncio.sleep(draw.choice([0, 0.01, 0.3]))
            writer.transport.abort()

        await asyncio.gather(*(client(random.Random(number)) for number in range(CLIENTS)))
        await picker.reaches(dict.fromkeys(names, 0))
        assert ends.total() == REQUESTS
        assert ends.pop("cut", 0) <= CLIENTS
        assert min(ends.values()) > 500, ends
        ended = picker.ended()
        assert ended["line"] > ends["plain"] + ends["stream"] + 500, (ended, ends)
        assert ended["stream"] == 0
