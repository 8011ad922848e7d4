"""Three gateways before one service: one count, whichever of them is killed and started again."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import grpc
import pytest
from gateway_processes import gateway
from gateways import CHAT, FakeWorker, client
from served import served

from coresched.core.ring import LoadBoundedRouter
from coresched.v1 import router_pb2 as pb
from coresched.v1.router_pb2_grpc import RouterStub

HELD = 30


@dataclass
class Front:
    """Gateways, the workers behind them, and the requests that a client holds open."""

    workers: list[FakeWorker]
    gateways: list[tuple[str, asyncio.subprocess.Process]]
    session: aiohttp.ClientSession
    held: list[asyncio.Task[int]] = field(default_factory=list)

    async def arrived(self, worker: FakeWorker) -> None:
        await asyncio.wait_for(worker.arrived.acquire(), 20)

    async def post(self, number: int, label: str = "hot") -> int:
        """One request through a gateway; the status of its answer, 0 if the connection broke."""
        url = f"http://{self.gateways[number % len(self.gateways)][0]}{CHAT}"
        headers = {"x-smg-routing-key": label}
        try:
            async with self.session.post(url, json={"messages": []}, headers=headers) as answer:
                await answer.read()
                return answer.status
        except aiohttp.ClientError:
            return 0

    async def hold(self, number: int, label: str = "hot") -> str:
        """Begin a request that its worker does not answer; the URL of the worker that has it."""
        before = [len(worker.seen) for worker in self.workers]
        self.held.append(asyncio.create_task(self.post(number, label)))
        waits = [asyncio.create_task(self.arrived(worker)) for worker in self.workers]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        (url,) = [worker.url for worker, n in zip(self.workers, before, strict=True) if len(worker.seen) > n]
        return url

    async def let_go(self) -> list[int]:
        """All held requests answered; their statuses."""
        for worker in self.workers:
            worker.gate.set()
        return list(await asyncio.gather(*self.held))


@asynccontextmanager
async def held_workers(count: int = 3) -> AsyncIterator[list[FakeWorker]]:
    """Workers that answer nothing before their gates are set."""
    workers = [FakeWorker() for _ in range(count)]
    for worker in workers:
        await worker.start()
    yield workers
    for worker in workers:
        await worker.kill()


@asynccontextmanager
async def front(workers: list[FakeWorker], service: str | None = None, *options: str) -> AsyncIterator[Front]:
    """Three gateways, each with a count of its own unless there is a service."""
    async with AsyncExitStack() as stack:
        if service is not None:
            options = (f"--service={service}", *options)
        starting = [
            stack.enter_async_context(gateway([] if service else workers, *options)) for _ in range(3)
        ]
        yield Front(workers, [await one for one in starting], await stack.enter_async_context(client()))


async def loads(address: str) -> dict[str, int]:
    async with grpc.aio.insecure_channel(address) as channel:
        reply = await RouterStub(channel).ListWorkers(
            pb.ListWorkersRequest(), wait_for_ready=True, timeout=20
        )
    return {worker.worker: worker.in_flight for worker in reply.workers}


async def counted(address: str, expected: dict[str, int]) -> None:
    async def same() -> None:
        while await loads(address) != expected:
            await asyncio.sleep(0.05)

    await asyncio.wait_for(same(), 20)


def of_service(workers: list[FakeWorker]) -> list[str]:
    return [*(f"--worker={worker.url}" for worker in workers), "--grace-s=0.2"]


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


async def test_three_gateways_of_one_service_split_a_hot_label_as_one_router_does() -> None:
    async with held_workers() as workers:
        alone = LoadBoundedRouter([worker.url for worker in workers], load_bound=1.25)
        with served(*of_service(workers)) as (service, _):
            async with front(workers, service) as gateways:
                chosen = [await gateways.hold(n) for n in range(HELD)]
                assert chosen == [alone.route("hot") for _ in range(HELD)]
                assert await loads(service) == alone.loads()
                assert await gateways.let_go() == [200] * HELD
                await counted(service, dict.fromkeys(alone.loads(), 0))


async def test_three_gateways_with_counts_of_their_own_split_it_each_for_itself() -> None:
    async with held_workers() as workers, front(workers) as gateways:
        urls = [worker.url for worker in workers]
        alone = [LoadBoundedRouter(urls, load_bound=1.25) for _ in gateways.gateways]
        chosen = [await gateways.hold(n) for n in range(HELD)]
        assert chosen == [alone[n % 3].route("hot") for n in range(HELD)]
        assert await gateways.let_go() == [200] * HELD


async def test_what_a_killed_gateway_had_in_flight_is_counted_no_more() -> None:
    async with held_workers() as workers:
        with served(*of_service(workers)) as (service, _):
            async with front(workers, service) as gateways:
                chosen = [await gateways.hold(n) for n in range(HELD)]
                gateways.gateways[1][1].kill()
                left = Counter(url for n, url in enumerate(chosen) if n % 3 != 1)
                await counted(service, {worker.url: left[worker.url] for worker in workers})
                statuses = await gateways.let_go()
                assert statuses == [0 if n % 3 == 1 else 200 for n in range(HELD)]
                await counted(service, {worker.url: 0 for worker in workers})


async def test_a_killed_service_loses_nothing_and_counts_exactly_once_it_is_back(tmp_path: Path) -> None:
    address = free_address()
    journal = f"--journal={tmp_path / 'journal'}"
    async with held_workers() as workers, AsyncExitStack() as stack:
        with served(*of_service(workers), journal, listen=address) as (_, process):
            gateways = await stack.enter_async_context(front(workers, address, "--service-wait-s=20"))
            chosen = [await gateways.hold(n) for n in range(HELD)]
            process.kill()
            process.wait()
        waiting = [asyncio.create_task(gateways.post(n, f"k{n}")) for n in range(3)]
        with served(*of_service(workers), journal, listen=address):
            for _ in waiting:  # they were routed as soon as there was somebody to ask
                arrivals = [asyncio.create_task(worker.arrived.acquire()) for worker in workers]
                await asyncio.wait(arrivals, return_when=asyncio.FIRST_COMPLETED, timeout=20)
                for arrival in arrivals:
                    arrival.cancel()
            held = Counter(chosen)
            sums = {worker.url: len(worker.seen) for worker in workers}
            assert sum(sums.values()) == HELD + 3
            assert all(sums[url] >= count for url, count in held.items())
            await counted(address, sums)
            assert await gateways.let_go() == [200] * HELD
            assert await asyncio.gather(*waiting) == [200] * 3
            await counted(address, {worker.url: 0 for worker in workers})


async def test_a_service_that_stays_away_is_said_with_503_and_nothing_is_sent() -> None:
    async with held_workers() as workers:
        with served(*of_service(workers)) as (service, process):
            async with front(workers, service, "--service-wait-s=0.3") as gateways:
                process.kill()
                process.wait()
                url = f"http://{gateways.gateways[0][0]}{CHAT}"
                async with gateways.session.post(url, json={"messages": []}) as answer:
                    error = json.loads(await answer.read())["error"]
                assert (answer.status, error["code"]) == (503, "router_away")
                assert int(answer.headers["Retry-After"]) >= 1
                assert service in error["message"]
                assert not any(worker.seen for worker in workers)


async def test_workers_join_and_leave_through_the_service_alone() -> None:
    async with held_workers(3) as workers:
        for worker in workers:
            worker.gate.set()
        with served(*of_service(workers[:1])) as (service, _):
            async with front(workers, service) as gateways, grpc.aio.insecure_channel(service) as channel:
                router = RouterStub(channel)
                assert [await gateways.post(n, f"k{n}") for n in range(6)] == [200] * 6
                assert [len(worker.seen) for worker in workers] == [6, 0, 0]
                for n in (1, 2):
                    call = pb.RegisterWorkerRequest(request_id=f"r{n}", worker=workers[n].url)
                    await router.RegisterWorker(call)
                await router.RemoveWorker(pb.RemoveWorkerRequest(request_id="r", worker=workers[0].url))
                await workers[0].kill()
                assert [await gateways.post(n, f"k{n}") for n in range(30)] == [200] * 30
                assert len(workers[0].seen) == 6
                assert len(workers[1].seen) + len(workers[2].seen) == 30


async def test_a_service_without_workers_is_told_of() -> None:
    with served() as (service, _):
        async with front([], service) as gateways:
            process = gateways.gateways[0][1]
            assert process.stderr is not None
            said = (await asyncio.wait_for(process.stderr.readline(), 20)).decode()
            assert "the service has no worker that can be used" in said
            url = f"http://{gateways.gateways[0][0]}{CHAT}"
            async with gateways.session.post(url, json={"messages": []}) as answer:
                error = json.loads(await answer.read())["error"]
            assert (answer.status, error["code"]) == (503, "no_healthy_worker")
            assert error["message"].startswith("the service has no worker yet, and nothing was executed")


async def test_a_dead_worker_is_out_for_the_gateway_that_met_it_and_no_request_fails() -> None:
    async with held_workers() as workers:
        for worker in workers:
            worker.gate.set()
        with served(*of_service(workers)) as (service, _):
            async with front(workers, service, "--health-interval-s=60") as gateways:
                await workers[0].kill()
                assert [await gateways.post(n, f"k{n}") for n in range(60)] == [200] * 60
                await counted(service, {worker.url: 0 for worker in workers})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--service=h:1", "--worker=http://h:2"], "--worker http://h:2 must be left out with --service"),
        (["--service=h:1", "--load-bound=2"], "--load-bound 2"),
        (["--service=http://h:1"], "--service must be HOST:PORT"),
        (["--worker=http://h:2", "--token=t"], "--token is for a service"),
        (["--service=127.0.0.1:1", "--service-wait-s=0.1"], "--service 127.0.0.1:1: the service"),
    ],
)
async def test_mistakes_are_named(options: list[str], said: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "coresched", "gateway", "--listen=127.0.0.1:0", *options),
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 2
    assert said in stderr.decode()
    assert len(stderr.decode().splitlines()) == 1


@pytest.mark.parametrize("token", [None, "1" * 32])
async def test_a_service_that_wants_another_token_is_refused_with_the_flag(
    token: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CORESCHED_TOKEN", raising=False)
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps([{"tenant": "a", "token": "0" * 32}]))
    options = [f"--token={token}"] if token else []
    with served("--tokens", str(tokens)) as (service, _):
        await test_mistakes_are_named(
            [f"--service={service}", *options], "give its token by CORESCHED_TOKEN or --token"
        )


async def test_a_worker_of_the_service_without_url_is_named_and_never_used() -> None:
    async with held_workers(1) as workers:
        workers[0].gate.set()
        with served(*of_service(workers), "--worker=w0") as (service, _):
            async with front(workers, service) as gateways:
                assert [await gateways.post(n, f"k{n}") for n in range(30)] == [200] * 30
                gateways.gateways[0][1].terminate()
                assert gateways.gateways[0][1].stderr is not None
                said = (await gateways.gateways[0][1].stderr.read()).decode()
                assert said.count("a worker of the service must be a base URL") == 1
