"""The asynchronous transport when something fails: nothing stays in flight, and one other worker is tried."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator

import httpx
import pytest
from model_workers import ModelWorker, model_workers, refusing

import coresched
from coresched.httpx import Flight, SharedRouter, Transport

CHAT = "http://workers/v1/chat/completions"


@pytest.fixture
def workers() -> Iterator[list[ModelWorker]]:
    with model_workers(2) as running:
        yield running


@pytest.fixture
def dead() -> Iterator[str]:
    with refusing() as url:
        yield url


def label_at(router: SharedRouter, worker: str) -> str:
    """A label whose home is this worker."""
    return next(f"t{i}" for i in range(10_000) if router.home(f"t{i}") == worker)


def answering(do: Callable[[httpx.Request], httpx.Response]) -> Callable[[], httpx.AsyncBaseTransport]:
    return lambda: httpx.MockTransport(do)


async def test_without_a_connection_the_next_worker_gets_the_request(
    workers: list[ModelWorker], dead: str
) -> None:
    router = SharedRouter([dead, *(worker.url for worker in workers)])
    transport = Transport([dead, *(worker.url for worker in workers)], router=router)
    async with httpx.AsyncClient(transport=transport) as client:
        label = label_at(router, dead)
        with coresched.label(label):
            for _ in range(3):
                response = await client.post(CHAT, json={"model": "say"})
                assert response.status_code == 200
    assert sorted(worker.labels() for worker in workers) == [[], [label] * 3]
    assert set(router.loads().values()) == {0}


async def test_without_any_connection_the_error_names_both_workers(dead: str) -> None:
    with refusing() as other, refusing() as third:
        urls = {"a": dead, "b": other, "c": third}
        transport = Transport(urls)
        async with httpx.AsyncClient(transport=transport) as client:
            with coresched.label("t1"), pytest.raises(httpx.ConnectError) as caught:
                await client.post(CHAT, json={})
    first = transport.router.home("t1")  # type: ignore[union-attr]
    assert f"no connection to worker {first} ({urls[first]}) or " in str(caught.value)
    assert str(caught.value).count("(http://") == 2
    assert set(transport.router.loads().values()) == {0}  # type: ignore[union-attr]


async def test_a_single_worker_is_tried_once(dead: str) -> None:
    transport = Transport([dead])
    async with httpx.AsyncClient(transport=transport) as client:
        with coresched.label("t1"), pytest.raises(httpx.ConnectError, match=f"worker {dead}: "):
            await client.post(CHAT, json={})
    assert transport.router.loads() == {dead: 0}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (httpx.ConnectError("refused"), 2),
        (httpx.ConnectTimeout("slow"), 2),
        (httpx.ReadError("reset"), 1),
        (httpx.WriteError("reset"), 1),
        (httpx.ReadTimeout("slow"), 1),
        (httpx.PoolTimeout("full"), 1),
        (httpx.RemoteProtocolError("gone"), 1),
        (KeyError("a bug"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
async def test_only_a_failure_to_connect_is_tried_elsewhere_and_once(error: Exception, sent: int) -> None:
    hosts: list[str] = []

    def fail(request: httpx.Request) -> httpx.Response:
        hosts.append(request.url.host)
        raise error

    transport = Transport(["http://w0", "http://w1", "http://w2"], inner=answering(fail))
    async with httpx.AsyncClient(transport=transport) as client:
        with coresched.label("t1"), pytest.raises(type(error)):
            await client.post(CHAT, json={})
    assert len(hosts) == len(set(hosts)) == sent
    assert set(transport.router.loads().values()) == {0}  # type: ignore[union-attr]


async def test_in_a_turn_the_turns_worker_is_the_only_one_tried() -> None:
    hosts: list[str] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        hosts.append(request.url.host)
        raise httpx.ConnectError("refused")

    transport = Transport(["http://w0", "http://w1", "http://w2"], inner=answering(refuse))
    async with (
        httpx.AsyncClient(transport=transport) as client,
        coresched.Batch(sample_concurrency=1, workers=["http://w1"]) as batch,
        batch.sample("t1") as sample,
    ):
        with pytest.raises(httpx.ConnectError, match=r"worker http://w1: refused"):
            async with sample.inference():
                await client.post(CHAT, json={})
        assert batch.report().samples["t1"].turns == 0
        assert batch._local._router is not None
        assert batch._local._router.loads() == {"http://w1": 0}
    assert hosts == ["w1"]
    assert set(transport.router.loads().values()) == {0}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"model": "fail"}, 500),
        ({"model": "break"}, httpx.RemoteProtocolError),
        ({"model": "break", "stream": True}, httpx.RemoteProtocolError),
    ],
    ids=["status", "broken body", "broken stream"],
)
async def test_what_a_worker_began_to_answer_is_not_sent_again(
    workers: list[ModelWorker], asked: dict[str, object], expected: object
) -> None:
    transport = Transport([worker.url for worker in workers])
    async with httpx.AsyncClient(transport=transport) as client:
        with coresched.label("t1"):
            if isinstance(expected, int):
                assert (await client.post(CHAT, json=asked)).status_code == expected
            else:
                with pytest.raises(expected):  # type: ignore[call-overload]
                    await client.post(CHAT, json=asked)
    assert sum(len(worker.seen) for worker in workers) == 1
    assert set(transport.router.loads().values()) == {0}  # type: ignore[union-attr]


async def test_a_body_that_breaks_ends_the_request_though_nobody_closes_it(
    workers: list[ModelWorker],
) -> None:
    transport = Transport([worker.url for worker in workers])
    async with httpx.AsyncClient(transport=transport) as client:
        with coresched.label("t1"):
            asked = client.build_request("POST", CHAT, json={"model": "break", "stream": True})
            response = await client.send(asked, stream=True)
        with pytest.raises(httpx.RemoteProtocolError):
            [part async for part in response.aiter_raw()]
        assert not response.is_closed
        assert set(transport.router.loads().values()) == {0}  # type: ignore[union-attr]


async def test_a_redirect_within_the_workers_follows_the_label(workers: list[ModelWorker]) -> None:
    transport = Transport([worker.url for worker in workers])
    async with httpx.AsyncClient(transport=transport, follow_redirects=True) as client:
        with coresched.label("t1"):
            response = await client.post(CHAT, json={"model": "go /v1/models"})
    assert response.status_code == 200
    (seen,) = [worker.seen for worker in workers if worker.seen]
    assert [(request.method, request.path, request.label) for request in seen] == [
        ("POST", "/v1/chat/completions", "t1"),
        ("GET", "/v1/models", "t1"),
    ]
    assert set(transport.router.loads().values()) == {0}  # type: ignore[union-attr]


async def test_a_redirect_to_another_host_is_refused_or_left_to_the_caller(
    workers: list[ModelWorker],
) -> None:
    with model_workers(1) as (stranger,):
        asked = {"model": f"go {stranger.url}/v1/models"}
        for follow in (False, True):
            transport = Transport([worker.url for worker in workers])
            async with httpx.AsyncClient(transport=transport, follow_redirects=follow) as client:
                with coresched.label("t1"):
                    if follow:
                        with pytest.raises(httpx.RemoteProtocolError, match=f"redirected to {stranger.url}"):
                            await client.post(CHAT, json=asked)
                    else:
                        assert (await client.post(CHAT, json=asked)).status_code == 303
            assert set(transport.router.loads().values()) == {0}  # type: ignore[union-attr]
        assert stranger.seen == []
    assert sum(len(worker.seen) for worker in workers) == 2


class WaitingRouter:
    """A router that has to be waited for, as one behind a network is."""

    def __init__(self, inside: SharedRouter) -> None:
        self.inside = inside

    async def route(self, label: str, exclude: Collection[str] = ()) -> Flight:
        await asyncio.sleep(0)
        return self.inside.route(label, exclude)


async def test_a_router_may_take_its_time(workers: list[ModelWorker], dead: str) -> None:
    inside = SharedRouter([dead, *(worker.url for worker in workers)])
    transport = Transport([dead, *(worker.url for worker in workers)], router=WaitingRouter(inside))
    async with httpx.AsyncClient(transport=transport) as client:
        with coresched.label(label_at(inside, dead)):
            assert (await client.post(CHAT, json={})).status_code == 200
    assert set(inside.loads().values()) == {0}


async def test_a_router_that_chooses_a_worker_without_url_is_refused() -> None:
    inside = SharedRouter(["w9"])
    transport = Transport({"w0": "http://w0"}, router=WaitingRouter(inside))
    async with httpx.AsyncClient(transport=transport) as client:
        with coresched.label("t1"), pytest.raises(ValueError, match=r"chose the worker 'w9'.*\['w0'\]"):
            await client.post(CHAT, json={})
    assert inside.loads() == {"w9": 0}
