"""The transport's counts over random interleavings of calls that end in every way there is.

Twin: a request is in flight on a worker from the moment the sending transport gets it to the moment that
fails, or its body is exhausted, fails or is closed; once, whatever the caller does after that.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coresched
from coresched.httpx import SharedRouter, Transport

WORKERS = ["http://w0", "http://w1", "http://w2"]


@dataclass(frozen=True)
class Call:
    """One call: what the workers do with it, in ticks of the event loop, and what the caller does."""

    label: str
    starts_at: int
    refused: int  # so many attempts get no connection
    answers_after: int
    fails: bool  # in place of an answer
    parts: int
    breaks_at: int | None  # the body fails before this part
    reads: int | None  # parts the caller takes before it closes; None: all
    closes: int  # times, afterwards
    cancelled_at: int | None


CALLS = st.lists(
    st.builds(
        Call,
        label=st.sampled_from(["a", "b", "c"]),
        starts_at=st.integers(0, 6),
        refused=st.integers(0, 3),
        answers_after=st.integers(0, 3),
        fails=st.booleans(),
        parts=st.integers(0, 3),
        breaks_at=st.none() | st.integers(0, 2),
        reads=st.none() | st.integers(0, 3),
        closes=st.integers(1, 3),
        cancelled_at=st.none() | st.integers(0, 15),
    ),
    min_size=1,
    max_size=6,
)


async def ticks(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


class Body(httpx.AsyncByteStream):
    def __init__(self, call: Call, worker: str, in_flight: Counter[str]) -> None:
        self.call = call
        self.worker = worker
        self.in_flight = in_flight
        self.open = True

    def end(self) -> None:
        if self.open:
            self.open = False
            self.in_flight[self.worker] -= 1

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            for part in range(self.call.parts):
                await asyncio.sleep(0)
                if part == self.call.breaks_at:
                    raise httpx.ReadError("broken")
                yield b"part"
        finally:
            self.end()

    async def aclose(self) -> None:
        self.end()


class Sender(httpx.AsyncBaseTransport):
    """The workers, without a network."""

    def __init__(self, calls: list[Call]) -> None:
        self.calls = calls
        self.attempts: Counter[int] = Counter()
        self.in_flight: Counter[str] = Counter(dict.fromkeys(WORKERS, 0))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        number = int(request.headers["number"])
        call = self.calls[number]
        worker = f"http://{request.url.host}"
        self.in_flight[worker] += 1
        body = Body(call, worker, self.in_flight)
        try:
            await ticks(call.answers_after)
            self.attempts[number] += 1
            if self.attempts[number] <= call.refused:
                raise httpx.ConnectError("refused")
            if call.fails:
                raise httpx.ReadError("reset")
        except BaseException:
            body.end()
            raise
        return httpx.Response(200, stream=body)


async def make(call: Call, number: int, client: httpx.AsyncClient) -> None:
    await ticks(call.starts_at)
    with coresched.label(call.label), suppress(httpx.TransportError):
        request = client.build_request("GET", "http://workers/", headers={"number": str(number)})
        response = await client.send(request, stream=True)
        try:
            taken = 0
            async for _ in response.aiter_raw():
                taken += 1
                if taken == call.reads:
                    break
        finally:
            for _ in range(call.closes):
                await response.aclose()


async def run(calls: list[Call]) -> None:
    router = SharedRouter(WORKERS)
    sender = Sender(calls)
    async with httpx.AsyncClient(transport=Transport(WORKERS, router=router, inner=lambda: sender)) as client:
        tasks = [asyncio.ensure_future(make(call, number, client)) for number, call in enumerate(calls)]
        for now in range(200):
            for task, call in zip(tasks, calls, strict=True):
                if call.cancelled_at == now:
                    task.cancel()
            await asyncio.sleep(0)
            assert router.loads() == dict(sender.in_flight)
            if all(task.done() for task in tasks):
                break
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert result is None or isinstance(result, asyncio.CancelledError)
        assert all(attempts <= 2 for attempts in sender.attempts.values())
    gc.collect()
    assert set(router.loads().values()) == {0}


@pytest.fixture(scope="module", autouse=True)
def _only_the_test_is_collected() -> Iterator[None]:
    """Each example collects garbage; what other modules have imported by then takes it a second to walk."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@settings(max_examples=150, deadline=None)
@given(calls=CALLS)
def test_in_flight_is_what_the_workers_have(calls: list[Call]) -> None:
    asyncio.run(run(calls))
