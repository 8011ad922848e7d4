"""The router of a service in clients: one count, whoever dies, restarts, waits or leaves."""

from __future__ import annotations

import asyncio
import gc
import socket
from contextlib import suppress

import pytest
from served import served

from coresched.client.remote.options import Connection
from coresched.client.remote.router import ServiceAwayError, ServiceRouter, UnknownExcludeError, routing
from coresched.core.ring import LoadBoundedRouter

WORKERS = {"w0": 1.0, "w1": 1.0, "w2": 2.0}
OPTIONS = [*(f"--worker={name}={weight:g}" for name, weight in WORKERS.items()), "--grace-s=0.1"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


async def counted(router: ServiceRouter, expected: dict[str, int]) -> None:
    """Returns once the service counts this."""

    async def same() -> None:
        while await loads(router) != expected:
            await asyncio.sleep(0.02)

    async def loads(router: ServiceRouter) -> dict[str, int] | None:
        try:
            return await router.loads()
        except ServiceAwayError:
            return None

    await asyncio.wait_for(same(), 20)


NOTHING = dict.fromkeys(WORKERS, 0)


async def test_two_clients_choose_as_one_router_in_process_does() -> None:
    alone = LoadBoundedRouter(WORKERS, load_bound=1.25)
    with served(*OPTIONS) as (address, _):
        async with (
            routing(Connection(target=address)) as one,
            routing(Connection(target=address)) as other,
        ):
            flights = []
            for n in range(200):
                flight = await (one, other)[n % 2].route(f"k{n % 7}", ["w1"] if n % 11 == 0 else [])
                assert flight.worker == alone.route(f"k{n % 7}", ["w1"] if n % 11 == 0 else [])
                flights.append(flight)
                if n % 3 == 2:
                    ended = flights.pop(n % len(flights))
                    ended.end()
                    alone.release(ended.worker)
                    await counted(one, alone.loads())
            del flight, ended  # who forgets to end one has ended it
            flights.clear()
            gc.collect()
            await counted(one, NOTHING)


async def test_many_wait_on_one_stream_at_once() -> None:
    alone = LoadBoundedRouter(WORKERS, load_bound=1.25)
    with served(*OPTIONS) as (address, _):
        async with routing(Connection(target=address)) as router:
            flights = await asyncio.gather(*(router.route(f"k{n}") for n in range(500)))
            assert [flight.worker for flight in flights] == [alone.route(f"k{n}") for n in range(500)]
            for flight in flights:
                flight.end()
                flight.end()
            await counted(router, NOTHING)


async def test_a_client_that_leaves_leaves_no_count() -> None:
    with served(*OPTIONS) as (address, _):
        async with routing(Connection(target=address)) as stays:
            kept = await stays.route("k")
            async with routing(Connection(target=address)) as leaves:
                gone = [await leaves.route(f"k{n}") for n in range(20)]
                assert sum((await stays.loads()).values()) == 21
            await counted(stays, NOTHING | {kept.worker: 1})
            del gone


async def test_a_killed_service_counts_all_that_goes_on_once_it_is_back() -> None:
    address = f"127.0.0.1:{free_port()}"
    async with routing(Connection(target=address), wait_s=20) as router:
        with served(*OPTIONS, listen=address) as (_, process):
            flights = [await router.route(f"k{n}") for n in range(30)]
            process.kill()
            process.wait()
        for flight in flights[:10]:  # while nobody counts
            flight.end()
        waiting = asyncio.create_task(router.route("late"))
        await asyncio.sleep(0.2)
        with served(*OPTIONS, listen=address):
            late = await waiting
            expected = dict(NOTHING)
            for flight in [*flights[10:], late]:
                expected[flight.worker] += 1
            await counted(router, expected)
            for flight in [*flights, late]:
                flight.end()
            await counted(router, NOTHING)


async def test_without_its_service_a_route_waits_and_then_says_so() -> None:
    address = f"127.0.0.1:{free_port()}"
    async with routing(Connection(target=address), wait_s=0.3) as router:
        with pytest.raises(ServiceAwayError, match=rf"{address} has not answered for 0.3 s \(UNAVAILABLE"):
            await router.route("k")
        with pytest.raises(ServiceAwayError):
            await router.workers()
        with served(*OPTIONS, listen=address):
            await counted(router, NOTHING)  # what was given up is not routed later


async def test_a_cancelled_route_leaves_nothing_counted() -> None:
    with served(*OPTIONS) as (address, _):
        async with routing(Connection(target=address)) as router:
            tasks = [asyncio.create_task(router.route(f"k{n}")) for n in range(200)]
            for turn, task in enumerate(tasks):
                if turn % 10 == 0:
                    await asyncio.sleep(0.001)
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if not isinstance(result, BaseException):
                    result.end()
            tasks.clear()
            await counted(router, NOTHING)


async def test_refusals_are_told_apart() -> None:
    with served(*OPTIONS) as (address, _):
        async with routing(Connection(target=address)) as router:
            with pytest.raises(LookupError, match="exclude must leave one routable worker"):
                await router.route("k", list(WORKERS))
            with pytest.raises(UnknownExcludeError, match="'w9'"):
                await router.route("k", ["w9"])
            with pytest.raises(ValueError, match="label"):
                await router.route("")
            await counted(router, NOTHING)


class Wire:
    """A TCP relay to a service whose two sides are cut one by one."""

    def __init__(self, to: str) -> None:
        host, port = to.rsplit(":", 1)
        self._to = (host, int(port))
        self._relays: list[asyncio.Task[None]] = []
        self.clients: list[asyncio.StreamWriter] = []
        self.services: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for relay in self._relays:
            relay.cancel()
        for writer in (*self.clients, *self.services):
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        from_service, service = await asyncio.open_connection(*self._to)
        self.clients.append(client)
        self.services.append(service)
        for source, sink in ((reader, service), (from_service, client)):
            self._relays.append(asyncio.create_task(self._relay(source, sink)))

    @staticmethod
    async def _relay(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                sink.write(data)


async def test_a_broken_stream_counts_twice_until_the_service_knows_and_then_exactly() -> None:
    with served(*OPTIONS) as (address, _):
        wire = Wire(address)
        async with (
            wire as relay,
            routing(Connection(target=address)) as watch,
            routing(Connection(target=relay)) as router,
        ):
            flights = [await router.route(f"k{n}") for n in range(30)]
            once = await watch.loads()
            assert sum(once.values()) == 30
            wire.clients[0].transport.abort()  # the service still has its side of the old connection
            await counted(watch, {worker: 2 * load for worker, load in once.items()})
            wire.services[0].transport.abort()
            await counted(watch, once)
            for flight in flights:
                flight.end()
            await counted(watch, NOTHING)
