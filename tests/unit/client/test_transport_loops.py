"""One router, several event loops in threads of their own: counts, homes, and whose connections are whose."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from model_workers import ModelWorker, model_workers, serving

import coresched
from coresched.core.ring import LoadBoundedRouter
from coresched.httpx import SharedRouter, Transport

CHAT = "http://workers/v1/chat/completions"


@pytest.fixture
def workers() -> Iterator[list[ModelWorker]]:
    with model_workers(3) as running:
        yield running


def in_threads(*work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run each in an event loop and thread of its own, all at once."""
    with ThreadPoolExecutor(len(work)) as pool:
        for result in [pool.submit(asyncio.run, one()) for one in work]:
            result.result()


async def trajectory(client: httpx.AsyncClient, name: str) -> None:
    with coresched.label(name):
        for stream in (False, True, False):
            response = await client.post(CHAT, json={"stream": stream})
            assert response.status_code == 200


@pytest.mark.parametrize("shared", ["transport", "router"])
def test_loops_in_threads_share_the_counts_and_every_label_stays_home(
    workers: list[ModelWorker], shared: str
) -> None:
    urls = [worker.url for worker in workers]
    router = SharedRouter(urls, load_bound=24.0)  # never reached, so that home is the only answer
    one = httpx.AsyncClient(transport=Transport(urls, router=router))

    async def harness(number: int) -> None:
        names = [f"t{number}-{i}" for i in range(4)]
        if shared == "transport":
            await asyncio.gather(*(trajectory(one, name) for name in names))
        else:
            async with httpx.AsyncClient(transport=Transport(urls, router=router)) as client:
                await asyncio.gather(*(trajectory(client, name) for name in names))

    in_threads(*(lambda number=number: harness(number) for number in range(4)))  # type: ignore[misc]
    for number in range(4):
        for i in range(4):
            worker = serving(workers, f"t{number}-{i}")
            assert worker.url == router.home(f"t{number}-{i}")
            assert worker.labels().count(f"t{number}-{i}") == 3
    assert set(router.loads().values()) == {0}
    asyncio.run(one.aclose())


def test_requests_of_several_loops_are_counted_together(workers: list[ModelWorker]) -> None:
    urls = [worker.url for worker in workers]
    router = SharedRouter(urls, load_bound=1.0)
    begun = threading.Barrier(4)

    async def harness() -> None:
        async with httpx.AsyncClient(transport=Transport(urls, router=router)) as client:
            with coresched.label("hot"):
                async with client.stream("POST", CHAT, json={"model": "hold", "stream": True}):
                    await asyncio.to_thread(begun.wait)
                    await asyncio.to_thread(begun.wait)

    async def watch() -> None:
        await asyncio.to_thread(begun.wait)
        loads = router.loads()
        await asyncio.to_thread(begun.wait)
        plain = LoadBoundedRouter(urls, load_bound=1.0)
        for _ in range(3):
            plain.route("hot")
        assert loads == plain.loads()
        assert max(loads.values()) == 2  # counted apart, the label's home would have all three

    in_threads(harness, harness, harness, watch)
    assert set(router.loads().values()) == {0}


class Inner(httpx.AsyncBaseTransport):
    """Answers without a network, and knows the loop it was made on and whether it was closed there."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.closed = threading.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert asyncio.get_running_loop() is self.loop
        return httpx.Response(200)

    async def aclose(self) -> None:
        assert asyncio.get_running_loop() is self.loop
        self.closed.set()


def test_closing_it_closes_the_connections_of_every_running_loop() -> None:
    inners: list[Inner] = []

    def make() -> Inner:
        inners.append(Inner())
        return inners[-1]

    client = httpx.AsyncClient(transport=Transport(["http://w0"], inner=make))
    begun, closed = threading.Barrier(3), threading.Barrier(3)

    async def use() -> None:
        with coresched.label("t1"):
            await client.get(CHAT)
            await client.get(CHAT)

    async def stays() -> None:
        await use()
        await asyncio.to_thread(begun.wait)
        await asyncio.to_thread(closed.wait)
        (mine,) = [inner for inner in inners if inner.loop is asyncio.get_running_loop()]
        assert await asyncio.to_thread(mine.closed.wait, 20)

    async def closes() -> None:
        await use()
        await asyncio.to_thread(begun.wait)
        await client.aclose()
        await asyncio.to_thread(closed.wait)

    in_threads(stays, stays, closes)
    assert [inner.closed.is_set() for inner in inners] == [True] * 3


async def test_after_closing_there_is_no_way_back() -> None:
    transport = Transport(["http://w0"], inner=Inner)
    async with httpx.AsyncClient(transport=transport):
        pass
    async with httpx.AsyncClient(transport=transport) as second:
        with coresched.label("t1"), pytest.raises(RuntimeError, match="give each client its own"):
            await second.get(CHAT)
    assert transport.router.loads() == {"http://w0": 0}  # type: ignore[union-attr]


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # its sockets, which asyncio closes as garbage
def test_a_loop_that_has_closed_is_forgotten_with_its_connections(workers: list[ModelWorker]) -> None:
    client = httpx.AsyncClient(transport=Transport([workers[0].url]))

    async def use() -> weakref.ref[asyncio.AbstractEventLoop]:
        with coresched.label("t1"):
            response = await client.get(CHAT)
            assert response.status_code == 200
        return weakref.ref(asyncio.get_running_loop())

    first = asyncio.run(use())
    gc.collect()
    assert first() is not None
    second = asyncio.run(use())
    gc.collect()
    assert (first(), second() is None) == (None, False)
    asyncio.run(client.aclose())
    gc.collect()
    assert second() is None
    assert len(workers[0].seen) == 2
