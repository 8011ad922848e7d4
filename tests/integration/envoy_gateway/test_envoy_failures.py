"""Killed workers, pickers and Envoys: what clients see, and what the counts become."""

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Signals

import httpx
import pytest
from envoys import PATIENCE_S, Envoy, Picker, Workers

from bench.gateways.client import UnexpectedAnswerError, connections, got
from bench.gateways.exchange import CHAT, HELD, body, requests
from bench.gateways.placement import held
from bench.gateways.worker import HELD as HELD_AT
from coresched.core import LoadBoundedRouter

CLIENTS = 24

pytestmark = [
    pytest.mark.envoy,
    pytest.mark.skipif(sys.platform != "linux", reason="its wheel is for Linux"),
]


@pytest.fixture
def workers() -> Iterator[list[Workers]]:
    """Three workers, each a process."""
    with ExitStack() as stack:
        yield [stack.enter_context(Workers(1)) for _ in range(3)]


def named(workers: Sequence[Workers]) -> list[str]:
    return [name for worker in workers for name in worker.names]


def none_in_flight(workers: Sequence[Workers]) -> dict[str, int]:
    return dict.fromkeys(named(workers), 0)


@dataclass
class Load:
    answered: int = 0


@asynccontextmanager
async def load(port: int) -> AsyncIterator[Load]:
    """Clients that send one request after another until the block ends. Fails if one is not answered 200."""
    done = Load()
    ended = asyncio.Event()

    async def client(number: int) -> None:
        draw = random.Random(number)
        async with connections(port, 1) as (connection,):
            while not ended.is_set():
                (request,) = requests([f"task-{number}-{draw.randrange(4)}"], draw.randint(2, 40))
                await connection.send(request)
                done.answered += 1

    clients = [asyncio.create_task(client(number)) for number in range(CLIENTS)]
    try:
        yield done
    finally:
        ended.set()
        await asyncio.wait_for(asyncio.gather(*clients), 30)


async def more(done: Load, count: int = 500) -> None:
    wanted, until = done.answered + count, time.monotonic() + PATIENCE_S
    while done.answered < wanted:
        assert time.monotonic() < until
        await asyncio.sleep(0.02)


async def status(envoy: Envoy, content: bytes | None = None) -> int:
    async with httpx.AsyncClient(timeout=20) as client:
        url = f"http://127.0.0.1:{envoy.port}{CHAT}"
        answer = await client.post(url, content=content or body(), headers={"x-smg-routing-key": "a"})
        return answer.status_code


async def test_a_killed_worker_costs_no_client_its_answer(workers: list[Workers]) -> None:
    names = named(workers)
    with Picker(names) as picker, Envoy(picker.address, names) as envoy:
        async with load(envoy.port) as done:
            await more(done)
            assert min(picker.in_flight().values()) > 0
            workers[0].kill()
            await more(done)
        await picker.reaches(none_in_flight(workers))


async def test_a_long_request_whose_worker_dropped_it_is_sent_again_whole() -> None:
    size = 5 << 20  # more than Envoy's buffers have without request_body_buffer_limit
    bodies: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.readuntil(b"\r\n\r\n")).startswith(b"POST"):
            bodies.append(len(await reader.readexactly(size)))
        if len(bodies) == 1:
            writer.transport.abort()
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    servers = [await asyncio.start_server(serve, "127.0.0.1", 0) for _ in range(2)]
    names = [f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers]
    with ExitStack() as stack:
        picker = stack.enter_context(await asyncio.to_thread(Picker, names))
        envoy = stack.enter_context(await asyncio.to_thread(Envoy, picker.address, names))
        assert await status(envoy, content=bytes(size)) == 200
        assert bodies == [size, size]
        await picker.reaches(dict.fromkeys(names, 0))
    for server in servers:
        server.close()


async def test_without_any_worker_503_and_none_is_in_flight(workers: list[Workers]) -> None:
    names = named(workers)
    with Picker(names) as picker, Envoy(picker.address, names) as envoy:
        assert await status(envoy) == 200
        for worker in workers:
            worker.kill()
        for _ in range(20):
            assert await status(envoy) == 503
        await picker.reaches(none_in_flight(workers))


async def test_more_than_the_limit_gets_429() -> None:
    with (
        Workers(2) as workers,
        Picker(workers.names, "--max-in-flight", "2") as picker,
        Envoy(picker.address, workers.names) as envoy,
    ):
        async with held([envoy.port], workers.ports, ["a", "b", "c", "d"]) as seen:
            assert seen[-1] == [2, 2]
            assert await status(envoy) == 429
            await picker.reaches(dict.fromkeys(workers.names, 2))
        await picker.reaches(dict.fromkeys(workers.names, 0))
        assert await status(envoy) == 200


async def test_while_the_picker_is_dead_envoy_chooses_itself() -> None:
    with Workers(3) as workers, ExitStack() as stack:
        picker = stack.enter_context(Picker(workers.names))
        envoy = stack.enter_context(Envoy(picker.address, workers.names))
        async with load(envoy.port) as done:
            await more(done)
            picker.kill()
            await more(done)
            again = stack.enter_context(Picker(workers.names, listen=picker.address))
            await more(done)
        await again.reaches(dict.fromkeys(workers.names, 0))
        router = LoadBoundedRouter(workers.names)
        for _ in range(12):
            router.route("hot")
        async with held([envoy.port], workers.ports, ["hot"] * 12) as seen:
            assert dict(zip(workers.names, seen[-1], strict=True)) == router.loads()
            await again.reaches(router.loads())


async def test_while_a_worker_is_dead_too_envoy_chooses_among_the_others(workers: list[Workers]) -> None:
    names = named(workers)
    with Picker(names) as picker, Envoy(picker.address, names) as envoy:
        async with load(envoy.port) as done:
            await more(done)
            picker.kill()
            await more(done)
            workers[0].kill()
            await more(done, 1000)


async def test_what_a_picker_that_hangs_did_not_answer_in_time_is_not_in_flight() -> None:
    with (
        Workers(3) as workers,
        Picker(workers.names) as picker,
        Envoy(picker.address, workers.names) as envoy,
    ):
        async with load(envoy.port) as done:
            await more(done)
            picker.process.send_signal(SIGSTOP)
            await more(done, 2 * CLIENTS)  # each after the message_timeout
            picker.process.send_signal(SIGCONT)
            await more(done)
        await picker.reaches(dict.fromkeys(workers.names, 0))


async def test_without_failure_mode_allow_a_dead_picker_means_503() -> None:
    def strict(configuration: str) -> str:
        assert configuration.count("failure_mode_allow: true") == 1
        return configuration.replace("failure_mode_allow: true", "failure_mode_allow: false")

    with (
        Workers(1) as workers,
        Picker(workers.names) as picker,
        Envoy(picker.address, workers.names, strict) as envoy,
    ):
        assert await status(envoy) == 200
        picker.kill()
        assert await status(envoy) == 503
        with Picker(workers.names, listen=picker.address):
            assert await status(envoy) == 200


@pytest.mark.parametrize("signal", [SIGKILL, SIGTERM])
async def test_what_an_envoy_had_in_flight_ends_with_it(signal: Signals) -> None:
    with (
        Workers(3) as workers,
        Picker(workers.names, "--log-wait-s", "1") as picker,
        Envoy(picker.address, workers.names) as other,
        Envoy(picker.address, workers.names) as envoy,
    ):
        async with held([other.port], workers.ports, ["a", "b", "c"]) as seen:
            kept = dict(zip(workers.names, seen[-1], strict=True))
            async with connections(envoy.port, 12) as opened:
                sent = [
                    asyncio.ensure_future(connection.send(request))
                    for connection, request in zip(
                        opened, requests([f"task-{number}" for number in range(12)], HELD), strict=True
                    )
                ]
                await asyncio.wait_for(got(workers.ports[0], f"{HELD_AT}15"), PATIENCE_S)
                envoy.process.send_signal(signal)
                ended = await asyncio.gather(*sent, return_exceptions=True)
                assert {type(one) for one in ended} == {UnexpectedAnswerError}
            await picker.reaches(kept)
        await picker.reaches(dict.fromkeys(workers.names, 0))
