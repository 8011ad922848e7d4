"""The blocking transport against real workers, from one thread and from many."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from model_workers import ModelWorker, model_workers, refusing, serving

import coresched
from coresched import sync
from coresched.httpx import SharedRouter, SyncTransport

CHAT = "http://workers/v1/chat/completions"


@pytest.fixture
def workers() -> Iterator[list[ModelWorker]]:
    with model_workers(3) as running:
        yield running


@pytest.fixture
def router(workers: list[ModelWorker]) -> SharedRouter:
    return SharedRouter([worker.url for worker in workers])


@pytest.fixture
def client(workers: list[ModelWorker], router: SharedRouter) -> Iterator[httpx.Client]:
    transport = SyncTransport([worker.url for worker in workers], router=router)
    with httpx.Client(transport=transport) as client:
        yield client


def test_threads_share_one_client_and_every_label_keeps_its_worker(workers: list[ModelWorker]) -> None:
    urls = [worker.url for worker in workers]
    router = SharedRouter(urls, load_bound=12.0)  # never reached, so that home is the only answer
    with httpx.Client(transport=SyncTransport(urls, router=router)) as client:

        def trajectory(name: str) -> None:
            with coresched.label(name):
                for stream in (False, True, False):
                    client.post(CHAT, json={"stream": stream}).raise_for_status()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(trajectory, [f"t{i}" for i in range(16)]))
    for i in range(16):
        worker = serving(workers, f"t{i}")
        assert (worker.url, worker.labels().count(f"t{i}")) == (router.home(f"t{i}"), 3)
    assert set(router.loads().values()) == {0}


@pytest.mark.parametrize("read", ["all", "some", "nothing"])
def test_a_stream_is_in_flight_until_it_is_read_or_closed(
    client: httpx.Client, router: SharedRouter, workers: list[ModelWorker], read: str
) -> None:
    with coresched.label("t1"), client.stream("POST", CHAT, json={"stream": True}) as response:
        assert sum(router.loads().values()) == 1
        if read == "all":
            assert "[DONE]" in "".join(response.iter_text())
            assert sum(router.loads().values()) == 0
        if read == "some":
            next(response.iter_raw(8))
    assert sum(router.loads().values()) == 0


@pytest.mark.parametrize(
    ("asked", "expected"), [({"model": "fail"}, None), ({"model": "break"}, httpx.RemoteProtocolError)]
)
def test_a_failure_at_the_worker_is_not_sent_again(
    client: httpx.Client,
    router: SharedRouter,
    workers: list[ModelWorker],
    asked: dict[str, str],
    expected: type[Exception] | None,
) -> None:
    with coresched.label("t1"):
        if expected is None:
            assert client.post(CHAT, json=asked).status_code == 500
        else:
            with pytest.raises(expected):
                client.post(CHAT, json=asked)
    assert sum(len(worker.seen) for worker in workers) == 1
    assert set(router.loads().values()) == {0}


def test_a_body_that_breaks_ends_the_request_though_nobody_closes_it(
    client: httpx.Client, router: SharedRouter
) -> None:
    with coresched.label("t1"):
        asked = client.build_request("POST", CHAT, json={"model": "break", "stream": True})
        response = client.send(asked, stream=True)
    with pytest.raises(httpx.RemoteProtocolError):
        list(response.iter_raw())
    assert not response.is_closed
    assert set(router.loads().values()) == {0}


def test_without_a_connection_one_other_worker_is_tried(workers: list[ModelWorker]) -> None:
    with refusing() as dead, refusing() as other:
        transport = SyncTransport([dead, workers[0].url])
        assert isinstance(transport.router, SharedRouter)
        label = next(f"t{i}" for i in range(1000) if transport.router.home(f"t{i}") == dead)
        with httpx.Client(transport=transport) as client, coresched.label(label):
            assert client.post(CHAT, json={}).status_code == 200
        assert workers[0].labels() == [label]
        assert set(transport.router.loads().values()) == {0}
        transport = SyncTransport([dead, other])
        with (
            httpx.Client(transport=transport) as client,
            coresched.label(label),
            pytest.raises(httpx.ConnectError, match=r"no connection to worker http://.* or http://.*: "),
        ):
            client.post(CHAT, json={})


def test_a_redirect_to_another_host_is_refused(client: httpx.Client, router: SharedRouter) -> None:
    asked = {"model": "go http://elsewhere/v1/models"}
    with coresched.label("t1"):
        with pytest.raises(httpx.RemoteProtocolError, match="redirected to http://elsewhere"):
            client.post(CHAT, json=asked, follow_redirects=True)
        assert client.post(CHAT, json=asked).status_code == 303
    assert set(router.loads().values()) == {0}


def test_in_a_blocking_batch_the_turn_says_where_and_counts(
    client: httpx.Client, router: SharedRouter, workers: list[ModelWorker]
) -> None:
    counted: list[int] = []
    meet = threading.Barrier(4)

    def trajectory(name: str) -> None:
        with batch.sample(name) as sample:
            for _ in range(2):
                with sample.inference() as turn:
                    response = client.post(CHAT, json={})
                    assert response.extensions["coresched_worker"] == turn.worker
                    meet.wait()
                    counted.append(sum(router.loads().values()))
                    meet.wait()
            with pytest.raises(ValueError, match="none is in scope"):
                client.post(CHAT, json={})

    names = [worker.url for worker in workers]
    with sync.Batch(sample_concurrency=4, workers=names) as batch, ThreadPoolExecutor(4) as pool:
        list(pool.map(trajectory, [f"t{i}" for i in range(4)]))
    assert counted == [0] * 8
    assert batch._local._router is not None
    assert set(batch._local._router.loads().values()) == {0}
    assert sum(len(worker.seen) for worker in workers) == 8
