"""The asynchronous transport against real workers: who gets what, and what is in flight meanwhile."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from model_workers import HEADER, ModelWorker, model_workers, serving

import coresched
from coresched.core.ring import LoadBoundedRouter
from coresched.httpx import SharedRouter, Transport

CHAT = "/v1/chat/completions"


@pytest.fixture
def workers() -> Iterator[list[ModelWorker]]:
    with model_workers(3) as running:
        yield running


@pytest.fixture
def transport(workers: list[ModelWorker]) -> Transport:
    return Transport(named(workers))


@pytest.fixture
async def client(transport: Transport) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=transport, base_url="http://workers") as client:
        yield client


def named(workers: list[ModelWorker]) -> dict[str, str]:
    """Names that put every label where it was in the last run; the ports are others each time."""
    return {f"w{number}": worker.url for number, worker in enumerate(workers)}


def in_flight(transport: Transport) -> int:
    assert isinstance(transport.router, SharedRouter)
    return sum(transport.router.loads().values())


def loads_after(router: LoadBoundedRouter, labels: list[str]) -> dict[str, int]:
    for label in labels:
        router.route(label)
    return router.loads()


async def test_every_turn_of_a_trajectory_goes_to_its_home(
    client: httpx.AsyncClient, transport: Transport, workers: list[ModelWorker]
) -> None:
    for _ in range(3):
        for i in range(12):
            with coresched.label(f"t{i}"):
                response = await client.post(CHAT, json={"model": "say"})
            assert response.json()["choices"][0]["message"]["content"] == "Hello you"
            assert response.extensions["coresched_worker"] == transport.router.home(f"t{i}")  # type: ignore[union-attr]
            assert in_flight(transport) == 0
    for i in range(12):
        worker = serving(workers, f"t{i}")
        assert worker.labels().count(f"t{i}") == 3
        assert worker.url == named(workers)[transport.router.home(f"t{i}")]  # type: ignore[union-attr]
    assert all(worker.seen for worker in workers)


async def test_the_worker_gets_the_request_as_if_it_had_been_asked(
    client: httpx.AsyncClient, workers: list[ModelWorker]
) -> None:
    with coresched.label("t1"):
        response = await client.post(
            f"{CHAT}?a=1&b=%2F", json={"model": "say"}, headers={"Authorization": "Bearer k"}
        )
    worker = serving(workers, "t1")
    (seen,) = worker.seen
    assert (seen.method, seen.path) == ("POST", f"{CHAT}?a=1&b=%2F")
    assert seen.headers["host"] == worker.address
    assert seen.headers["authorization"] == "Bearer k"
    assert seen.headers[HEADER] == "t1"
    assert json.loads(seen.body) == {"model": "say"}
    assert response.request.url == f"http://workers{CHAT}?a=1&b=%2F"
    assert HEADER not in response.request.headers


async def test_a_path_of_the_worker_and_another_header_name(workers: list[ModelWorker]) -> None:
    transport = Transport({"one": workers[0].url + "/engine/"}, label_header="X-Session")
    async with httpx.AsyncClient(transport=transport) as client:
        with coresched.label("t1"):
            response = await client.get("https://any.host:1/v1/models")
    assert response.extensions["coresched_worker"] == "one"
    (seen,) = workers[0].seen
    assert (seen.method, seen.path) == ("GET", "/engine/v1/models")
    assert (seen.headers["x-session"], seen.headers["x-session-id"], seen.label) == ("t1", "t1", None)


async def test_a_session_of_the_calls_own_stays(
    client: httpx.AsyncClient, workers: list[ModelWorker]
) -> None:
    with coresched.label("t1"):
        await client.post(CHAT, json={}, headers={"X-Session-ID": "mine"})
    (seen,) = (seen for worker in workers for seen in worker.seen)
    assert (seen.headers[HEADER], seen.headers["x-session-id"]) == ("t1", "mine")


async def test_the_label_of_the_header_comes_before_the_one_in_scope(
    client: httpx.AsyncClient, workers: list[ModelWorker]
) -> None:
    with coresched.label("scoped"):
        await client.post(CHAT, json={}, headers={HEADER: "t2"})
    await client.post(CHAT, json={}, headers={HEADER: "t2"})
    assert serving(workers, "t2").labels() == ["t2", "t2"]
    assert sum(len(worker.seen) for worker in workers) == 2


async def test_a_call_without_a_label_says_how_to_get_one(
    client: httpx.AsyncClient, workers: list[ModelWorker]
) -> None:
    with pytest.raises(ValueError, match=r"none is in scope.*coresched\.label.*turn.*x-smg-routing-key"):
        await client.post(CHAT, json={})
    with pytest.raises(ValueError, match="x-smg-routing-key must not be empty"):
        await client.post(CHAT, json={}, headers={HEADER: ""})
    with coresched.label("é"), pytest.raises(ValueError, match="label must be printable ASCII"):
        await client.post(CHAT, json={})
    assert not any(worker.seen for worker in workers)


async def test_a_stream_is_in_flight_until_it_is_read(
    client: httpx.AsyncClient, transport: Transport
) -> None:
    with coresched.label("t1"):
        async with client.stream("POST", CHAT, json={"stream": True}) as response:
            assert in_flight(transport) == 1
            assert "[DONE]" in "".join([line async for line in response.aiter_lines()])
            assert in_flight(transport) == 0
        assert in_flight(transport) == 0


async def test_an_abandoned_stream_is_in_flight_until_it_is_closed(
    client: httpx.AsyncClient, transport: Transport
) -> None:
    with coresched.label("t1"):
        async with client.stream("POST", CHAT, json={"model": "hold", "stream": True}) as response:
            async for line in response.aiter_lines():
                assert "Hel" in line
                assert in_flight(transport) == 1
                break
            assert in_flight(transport) == 1
        assert in_flight(transport) == 0
        await response.aclose()
        assert in_flight(transport) == 0


async def test_a_stream_that_is_just_dropped_ends_with_it(
    client: httpx.AsyncClient, transport: Transport
) -> None:
    with coresched.label("t1"):
        request = client.build_request("POST", CHAT, json={"model": "hold", "stream": True})
        response = await client.send(request, stream=True)
    assert in_flight(transport) == 1
    del response
    gc.collect()  # httpx's response refers to itself
    assert in_flight(transport) == 0


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
async def test_a_cancelled_call_is_in_flight_no_more(
    client: httpx.AsyncClient, transport: Transport, workers: list[ModelWorker], stream: bool
) -> None:
    with coresched.label("t1"):
        call = asyncio.ensure_future(client.post(CHAT, json={"model": "hold", "stream": stream}))
    while not any(worker.seen for worker in workers):
        await asyncio.sleep(0.005)
    assert in_flight(transport) == 1
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert in_flight(transport) == 0


async def test_the_load_bound_sends_the_rest_elsewhere(workers: list[ModelWorker]) -> None:
    transport = Transport([worker.url for worker in workers], load_bound=1.0)
    async with httpx.AsyncClient(transport=transport, base_url="http://workers") as client:
        with coresched.label("hot"):
            calls = [asyncio.ensure_future(client.post(CHAT, json={"model": "hold"})) for _ in range(6)]
        while sum(len(worker.seen) for worker in workers) < 6:
            await asyncio.sleep(0.005)
        assert isinstance(transport.router, SharedRouter)
        plain = LoadBoundedRouter([worker.url for worker in workers], load_bound=1.0)
        assert transport.router.loads() == loads_after(plain, ["hot"] * 6)
        assert 0 not in transport.router.loads().values()
        for worker in workers:
            worker.gate.set()
        await asyncio.gather(*calls)
        assert in_flight(transport) == 0


async def test_in_a_routed_turn_the_turns_worker_answers_and_the_turn_counts(
    client: httpx.AsyncClient, transport: Transport, workers: list[ModelWorker]
) -> None:
    # With these weights every turn has a worker that the transport would not choose for all of them.
    names = {"w0": 0.01, "w1": 0.01, "w2": 100.0}

    async def trajectory(batch: coresched.Batch, name: str) -> None:
        async with batch.sample(name) as sample:
            for _ in range(2):
                async with sample.inference() as turn:
                    calls = [client.post(CHAT, json={}, headers=headers) for headers in ({}, turn.headers)]
                    for response in await asyncio.gather(*calls):
                        assert response.extensions["coresched_worker"] == turn.worker
                        assert in_flight(transport) == 0

    async with coresched.Batch(sample_concurrency=4, workers=names, load_bound=50.0) as batch:
        await asyncio.gather(*(trajectory(batch, f"t{i}") for i in range(8)))
        assert batch._local._router is not None
        assert set(batch._local._router.loads().values()) == {0}
    assert [len(worker.seen) for worker in workers] == [0, 0, 32]
    assert isinstance(transport.router, SharedRouter)
    assert {transport.router.home(f"t{i}") for i in range(8)} != {"w2"}


async def test_a_turn_routed_to_a_stranger_is_refused(
    client: httpx.AsyncClient, transport: Transport, workers: list[ModelWorker]
) -> None:
    async with (
        coresched.Batch(sample_concurrency=1, workers=["http://elsewhere"]) as batch,
        batch.sample("t1") as sample,
        sample.inference(),
    ):
        with pytest.raises(
            ValueError, match=r"'t1' was routed to the worker 'http://elsewhere', which is not"
        ):
            await client.post(CHAT, json={})
    assert in_flight(transport) == 0
    assert not any(worker.seen for worker in workers)


async def test_in_a_turn_without_workers_the_transport_routes(
    client: httpx.AsyncClient, transport: Transport, workers: list[ModelWorker]
) -> None:
    async with coresched.Batch(sample_concurrency=1) as batch, batch.sample("t1") as sample:
        async with sample.inference():
            await client.post(CHAT, json={})
        with pytest.raises(ValueError, match="none is in scope"):
            await client.post(CHAT, json={})
    assert serving(workers, "t1").url == named(workers)[transport.router.home("t1")]  # type: ignore[union-attr]
