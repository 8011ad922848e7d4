"""Workers that die or come back and clients that leave: what moves, what is retried, what is counted."""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from gateways import CHAT, FakeWorker, Running, client, gateway

from coresched.core.ring import LoadBoundedRouter

LABELS = [f"traj-{n}" for n in range(60)]


async def ask(session: aiohttp.ClientSession, running: Running, label: str) -> str:
    """The worker that answered."""
    headers = {"x-smg-routing-key": label}
    async with session.post(running.url + CHAT, data=b"{}", headers=headers) as answer:
        assert answer.status == 200
        return answer.headers["x-coresched-worker"]


async def eventually(settled: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not settled():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(wait(), 20)


async def test_the_bound_holds_while_requests_are_held() -> None:
    workers = [FakeWorker() for _ in range(3)]
    async with gateway(*workers) as running, client() as session:
        ring = LoadBoundedRouter([worker.url for worker in workers])
        for worker in workers:
            worker.gate.clear()
        held = []
        for n in range(40):
            label = "hot" if n % 2 else LABELS[n]
            expected = ring.route(label)
            held.append(asyncio.create_task(ask(session, running, label)))
            await asyncio.wait_for(running.worker(expected).arrived.acquire(), 20)
            assert running.fleet.in_flight() == ring.loads()
        assert max(ring.loads().values()) <= 1.25 * 41 / 3 + 1
        for worker in workers:
            worker.gate.set()
        await asyncio.gather(*held)


async def test_a_dead_workers_labels_move_and_come_home() -> None:
    workers = [FakeWorker() for _ in range(3)]
    async with gateway(*workers, health_interval_s=0.05) as running, client() as session:
        home = {label: await ask(session, running, label) for label in LABELS}
        dead = running.worker(home[LABELS[0]])
        await dead.kill()
        moved = {label: await ask(session, running, label) for label in LABELS}
        assert {label for label in LABELS if moved[label] != home[label]} == {
            label for label in LABELS if home[label] == dead.url
        }
        assert "is out: " in await asyncio.wait_for(running.changes.get(), 20)
        await dead.start()
        assert (
            await asyncio.wait_for(running.changes.get(), 20) == f"worker {dead.url} is back: it is healthy"
        )
        assert {label: await ask(session, running, label) for label in LABELS} == home
        assert sum(worker.retries for worker in running.fleet.workers) >= 1


async def test_a_refused_connection_is_tried_once_elsewhere() -> None:
    workers = [FakeWorker() for _ in range(3)]
    async with gateway(*workers) as running, client() as session:
        first = await ask(session, running, "k")
        await running.worker(first).kill()
        second = await ask(session, running, "k")
        assert second != first
        counts = {
            worker.name: (worker.requests, worker.retries, worker.failures)
            for worker in running.fleet.workers
        }
        assert counts.pop(first) == (2, 0, 1)
        assert counts.pop(second) == (1, 1, 0)
        assert [len(worker.seen) for worker in workers if worker.url not in (first, second)] == [0]


async def test_two_refused_connections_are_503_and_nothing_was_sent() -> None:
    workers = [FakeWorker() for _ in range(3)]
    async with gateway(*workers) as running, client() as session:
        ring = LoadBoundedRouter([worker.url for worker in workers])
        first = ring.route("k")
        for name in (first, ring.route("k", [first])):
            await running.worker(name).kill()
        headers = {"x-smg-routing-key": "k"}
        async with session.post(running.url + CHAT, data=b"{}", headers=headers) as answer:
            assert answer.status == 503
            assert (await answer.json())["error"]["code"] == "no_healthy_worker"
        assert await ask(session, running, "k")  # the third


async def cut(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def cut_after(request: web.BaseRequest, answer: web.StreamResponse) -> web.StreamResponse:
    await answer.prepare(request)
    await answer.write(b"data: 1\n\n")
    assert request.transport is not None
    request.transport.close()  # flushes first
    return answer


async def cut_stream(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
    return await cut_after(request, web.StreamResponse(headers={"Content-Type": "text/event-stream"}))


async def cut_long(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
    return await cut_after(request, web.StreamResponse(headers={"Content-Length": "100000"}))


async def cut_short(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
    return await cut_after(request, web.StreamResponse(headers={"Content-Length": "1000"}))


async def nonsense(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.write(b"SSH-2.0-nonsense\r\n\r\n")
    return await cut(request, body)


@pytest.mark.parametrize("respond", [cut, nonsense, cut_short])
async def test_a_request_that_may_have_been_executed_is_not_sent_again(
    respond: Callable[[web.BaseRequest, bytes], Awaitable[web.StreamResponse]],
) -> None:
    workers = [FakeWorker(respond), FakeWorker(respond)]
    async with gateway(*workers) as running, client() as session:
        async with session.post(running.url + CHAT, data=b"{}") as answer:
            assert answer.status == 502
            error = (await answer.json())["error"]
            assert (error["code"], error["type"]) == ("worker_failed", "server_error")
        assert sum(len(worker.seen) for worker in workers) == 1
        assert sum(worker.failures for worker in running.fleet.workers) == 1
        assert running.fleet.healthy() == 2  # one failure is not three in a row


@pytest.mark.parametrize("respond", [cut_stream, cut_long])
async def test_an_answer_that_breaks_off_is_cut_for_the_client_too(
    respond: Callable[[web.BaseRequest, bytes], Awaitable[web.StreamResponse]],
) -> None:
    async with gateway(FakeWorker(respond)) as running, client() as session:
        answer = await session.post(running.url + CHAT, data=b"{}")
        assert answer.status == 200
        with pytest.raises((aiohttp.ClientPayloadError, aiohttp.ClientOSError)):
            await answer.read()
        await eventually(lambda: sum(running.fleet.in_flight().values()) == 0)
        assert running.fleet.workers[0].failures == 1


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_client_that_leaves_cancels_its_request(streaming: bool) -> None:
    never = asyncio.Event()

    async def respond(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        answer = web.StreamResponse()
        if streaming:
            await answer.prepare(request)
        await never.wait()
        return answer

    worker = FakeWorker(respond)
    async with gateway(worker) as running, client() as session:
        asking = asyncio.create_task(session.post(running.url + CHAT, data=b"{}"))
        await asyncio.wait_for(worker.arrived.acquire(), 20)
        assert sum(running.fleet.in_flight().values()) == 1
        if streaming:
            (await asking).close()
        else:
            asking.cancel()
        await asyncio.wait_for(worker.gone.wait(), 20)
        await eventually(lambda: sum(running.fleet.in_flight().values()) == 0)
        assert running.fleet.workers[0].failures == 0


async def test_a_worker_is_out_after_failed_checks_in_a_row() -> None:
    sick, well = FakeWorker(), FakeWorker()
    async with gateway(sick, well, health_interval_s=0.02, failures_to_out=2) as running:
        sick.health = 503
        out = await asyncio.wait_for(running.changes.get(), 20)
        assert out == f"worker {sick.url} is out: GET /health answered 503"
        async with client() as session:
            assert {await ask(session, running, label) for label in LABELS} == {well.url}
            async with session.get(running.url + "/health") as answer:
                assert (answer.status, await answer.json()) == (200, {"healthy_workers": 1, "workers": 2})
        sick.health = 200
        assert "is back" in await asyncio.wait_for(running.changes.get(), 20)


async def test_a_worker_that_is_down_at_the_start_is_out() -> None:
    down = FakeWorker()
    await down.start()
    await down.kill()

    async def stay_down() -> None:
        down.url = f"http://127.0.0.1:{down.port}"

    down.start = stay_down  # type: ignore[method-assign]
    async with gateway(down, FakeWorker()) as running, client() as session:
        assert running.fleet.healthy() == 1
        assert {await ask(session, running, label) for label in LABELS} == {running.workers[1].url}
        assert sum(worker.retries for worker in running.fleet.workers) == 0


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with gateway(FakeWorker()) as running, client() as session:
        assert await ask(session, running, "k") == running.workers[0].url
