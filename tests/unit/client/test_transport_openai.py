"""The unmodified OpenAI clients on the transports: plain, streaming, retrying, failing."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from model_workers import ModelWorker, model_workers, refusing, serving

import coresched
from coresched import sync
from coresched.httpx import SharedRouter, SyncTransport, Transport

ASK: Any = {"messages": [{"role": "user", "content": "say"}]}


@pytest.fixture
def workers() -> Iterator[list[ModelWorker]]:
    with model_workers(3) as running:
        yield running


@pytest.fixture
def urls(workers: list[ModelWorker]) -> list[str]:
    return [worker.url for worker in workers]


@pytest.fixture
def router(urls: list[str]) -> SharedRouter:
    return SharedRouter(urls)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.002)


def client_over(transport: Transport) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        api_key="none", base_url="http://workers/v1", http_client=httpx.AsyncClient(transport=transport)
    )


@pytest.fixture
async def client(urls: list[str], router: SharedRouter) -> AsyncIterator[openai.AsyncOpenAI]:
    async with client_over(Transport(urls, router=router)) as client:
        yield client


def in_flight(router: SharedRouter) -> int:
    return sum(router.loads().values())


def causes(error: BaseException | None) -> list[str]:
    """What a person reads in the traceback, from the outside in."""
    said = []
    while error is not None:
        said.append(f"{type(error).__name__}: {error}")
        error = error.__cause__
    return said


async def test_a_batch_needs_nothing_more_than_its_turns(
    client: openai.AsyncOpenAI, router: SharedRouter, workers: list[ModelWorker], urls: list[str]
) -> None:
    async def trajectory(batch: coresched.Batch, name: str) -> None:
        async with batch.sample(name) as sample:
            for _ in range(2):
                async with sample.inference():
                    reply = await client.chat.completions.create(model="say", **ASK)
                assert reply.choices[0].message.content == "Hello you"
                async with sample.inference():
                    stream = await client.chat.completions.create(model="say", stream=True, **ASK)
                    assert "".join([c.choices[0].delta.content async for c in stream]) == "Hello you"

    async with coresched.Batch(sample_concurrency=6, workers=urls, load_bound=100.0) as batch:
        await asyncio.gather(*(trajectory(batch, f"t{i}") for i in range(10)))
        assert batch._local._router is not None
        assert set(batch._local._router.loads().values()) == {0}
    assert in_flight(router) == 0
    for i in range(10):
        assert serving(workers, f"t{i}").labels().count(f"t{i}") == 4


@pytest.mark.parametrize("how", ["closed", "dropped", "cancelled"])
async def test_an_abandoned_stream_is_in_flight_no_more(
    client: openai.AsyncOpenAI, router: SharedRouter, how: str
) -> None:
    async def take_one() -> None:
        stream = await client.chat.completions.create(model="hold", stream=True, **ASK)
        async for part in stream:
            assert part.choices[0].delta.content == "Hel"
            assert in_flight(router) == 1
            begun.set()
            if how != "cancelled":
                break
        if how == "closed":
            await stream.close()
            assert in_flight(router) == 0

    begun = asyncio.Event()
    with coresched.label("t1"):
        task = asyncio.ensure_future(take_one())
    await begun.wait()
    if how == "cancelled":
        task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() or task.exception() is None
    del task
    for _ in range(10):
        gc.collect()
        await asyncio.sleep(0)
    assert in_flight(router) == 0


async def test_its_own_retries_are_new_requests_with_the_same_label(
    client: openai.AsyncOpenAI, router: SharedRouter, workers: list[ModelWorker]
) -> None:
    for worker in workers:
        worker.failures = 2
    with coresched.label("t1"):
        reply = await client.chat.completions.create(model="say", **ASK)
    assert reply.choices[0].message.content == "Hello you"
    assert serving(workers, "t1").labels() == ["t1"] * 3
    assert in_flight(router) == 0
    with coresched.label("t1"), pytest.raises(openai.InternalServerError):
        await client.chat.completions.create(model="fail", **ASK)
    assert serving(workers, "t1").labels() == ["t1"] * 6
    assert in_flight(router) == 0


async def test_in_a_turn_its_retries_stay_with_the_turns_worker_and_count_once(
    client: openai.AsyncOpenAI, workers: list[ModelWorker], urls: list[str]
) -> None:
    async with coresched.Batch(sample_concurrency=1, workers=urls) as batch, batch.sample("t1") as sample:
        for worker in workers:
            worker.failures = 2
        async with sample.inference() as turn:
            await client.chat.completions.create(model="say", **ASK)
            assert batch._local._router is not None
            assert sum(batch._local._router.loads().values()) == 1
        assert [len(worker.seen) for worker in workers if worker.url == turn.worker] == [3]
        assert sum(len(worker.seen) for worker in workers) == 3
        assert set(batch._local._router.loads().values()) == {0}


async def test_a_call_without_a_label_shows_the_sentence(client: openai.AsyncOpenAI) -> None:
    with pytest.raises((ValueError, openai.APIConnectionError)) as caught:  # clients before 3 wrap it
        await client.chat.completions.create(model="say", **ASK)
    assert causes(caught.value)[-1].startswith("ValueError: a model call needs a trajectory label")


async def test_without_a_connection_the_error_behind_names_the_workers() -> None:
    with refusing() as dead, refusing() as other:
        transport = Transport([dead, other])
        async with client_over(transport) as client:
            with coresched.label("t1"), pytest.raises(openai.APIConnectionError) as caught:
                await client.chat.completions.create(model="say", **ASK)
    said = causes(caught.value)
    assert said[0] == "APIConnectionError: Connection error."
    assert said[1].startswith("ConnectError: no connection to worker http://127.0.0.1:")
    assert dead in said[1]
    assert other in said[1]
    assert set(transport.router.loads().values()) == {0}  # type: ignore[union-attr]


def test_the_blocking_client_in_a_blocking_batch(urls: list[str], workers: list[ModelWorker]) -> None:
    def trajectory(name: str) -> None:
        with batch.sample(name) as sample:
            with sample.inference():
                reply = client.chat.completions.create(model="say", **ASK)
                assert reply.choices[0].message.content == "Hello you"
            with sample.inference():
                stream = client.chat.completions.create(model="say", stream=True, **ASK)
                assert [part.choices[0].delta.content for part in stream] == ["Hel", "lo ", "you"]
            with (
                sample.inference(),
                client.chat.completions.create(model="hold", stream=True, **ASK) as stream,
            ):
                assert next(iter(stream)).choices[0].delta.content == "Hel"

    http = httpx.Client(transport=SyncTransport(urls))
    with openai.OpenAI(api_key="none", base_url="http://workers/v1", http_client=http) as client:
        with (
            sync.Batch(sample_concurrency=4, workers=urls, load_bound=100.0) as batch,
            ThreadPoolExecutor(4) as pool,
        ):
            list(pool.map(trajectory, [f"t{i}" for i in range(8)]))
        for i in range(8):
            assert serving(workers, f"t{i}").labels().count(f"t{i}") == 3
        assert batch._local._router is not None
        assert set(batch._local._router.loads().values()) == {0}
        with coresched.label("t9"):
            client.chat.completions.create(model="say", **ASK)
        assert serving(workers, "t9").labels().count("t9") == 1


async def test_a_client_of_another_library_is_told_which_one_to_give(urls: list[str]) -> None:
    theirs = openai.DefaultAsyncHttpxClient(transport=Transport(urls))  # type: ignore[arg-type]
    if isinstance(theirs, httpx.AsyncClient):
        pytest.skip("this OpenAI client is one of httpx")
    client = openai.AsyncOpenAI(api_key="none", base_url="http://workers/v1", http_client=theirs)
    with coresched.label("t1"), pytest.raises(TypeError, match=r"http_client=httpx\.AsyncClient"):
        await client.chat.completions.create(model="say", **ASK)
    await client.close()
