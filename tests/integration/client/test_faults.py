"""The clients against a real service when connections break, processes die and the service vanishes."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from threading import Event, Thread
from typing import Any

import pytest
from served import CHECKOUT, served

import coresched
from coresched import sync


class Proxy:
    """Passes bytes on to the service, over connections that can all be cut."""

    def __init__(self, address: str) -> None:
        self.host, port = address.split(":")
        self.port = int(port)
        self.address = ""
        self.cuts = 0
        self._open: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield
        finally:
            self.cut()
            server.close()

    def cut(self) -> None:
        self.cuts += bool(self._open)
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, onward = await asyncio.open_connection(self.host, self.port)
        self._open |= {writer, onward}
        await asyncio.gather(self._pass(reader, onward), self._pass(behind, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
        except OSError:
            pass
        finally:
            writer.close()


async def cut_again_and_again(proxy: Proxy) -> None:
    while True:
        await asyncio.sleep(0.08)
        proxy.cut()


SAMPLES, TURNS = 30, 4


async def test_each_step_counts_once_however_often_connections_break(service: str) -> None:
    proxy = Proxy(service)

    async def run(name: str) -> None:
        async with batch.sample(name) as sample, sample.resident():
            for _ in range(TURNS):
                async with sample.inference():
                    await asyncio.sleep(0.01)
                async with sample.environment():
                    await asyncio.sleep(0.005)

    async with proxy.listening():
        async with coresched.connect(
            proxy.address,
            batch="broken",
            sample_concurrency=6,
            environment_concurrency=2,
            resident_concurrency=4,
        ) as batch:
            cutting = asyncio.ensure_future(cut_again_and_again(proxy))
            await asyncio.gather(*(run(f"s{n}") for n in range(SAMPLES)))
            cutting.cancel()
        totals = batch.report().totals
    assert proxy.cuts >= 3
    assert (totals.samples, totals.finished) == (SAMPLES, SAMPLES)
    assert (totals.turns, totals.environment_stages) == (SAMPLES * TURNS, SAMPLES * TURNS)


@contextmanager
def cut_in_background(address: str) -> Iterator[Proxy]:
    proxy = Proxy(address)
    ready, stop = Event(), Event()

    async def serve() -> None:
        async with proxy.listening():
            ready.set()
            cutting = asyncio.ensure_future(cut_again_and_again(proxy))
            await asyncio.to_thread(stop.wait)
            cutting.cancel()

    thread = Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    try:
        yield proxy
    finally:
        stop.set()
        thread.join()


def test_so_do_those_of_threads(service: str) -> None:
    def run(name: str) -> None:
        with batch.sample(name) as sample:
            for _ in range(TURNS):
                with sample.inference():
                    time.sleep(0.01)
                with sample.environment():
                    time.sleep(0.005)

    with cut_in_background(service) as proxy:
        with (
            sync.connect(
                proxy.address, batch="broken threads", sample_concurrency=6, environment_concurrency=2
            ) as batch,
            ThreadPoolExecutor(8) as pool,
        ):
            list(pool.map(run, [f"s{n}" for n in range(SAMPLES)]))
        totals = batch.report().totals
    assert proxy.cuts >= 3
    assert (totals.samples, totals.finished) == (SAMPLES, SAMPLES)
    assert (totals.turns, totals.environment_stages) == (SAMPLES * TURNS, SAMPLES * TURNS)


WORKER = """
import asyncio, sys, time
import coresched

async def run(sample, victim):
    async with sample, sample.environment():
        print(sample.id, flush=True)
        if victim:
            time.sleep(600)  # the whole process hangs, heartbeats too

async def main(address, victim):
    async with coresched.connect(address, batch="mortal", sample_concurrency=2, environment_concurrency=1,
                                 grace_s=1) as batch:
        await batch.submit([f"s{n}" for n in range(6)])
        runs = [asyncio.create_task(run(sample, victim)) async for sample in batch.admissions()]
        await asyncio.gather(*runs)

asyncio.run(main(sys.argv[1], sys.argv[2] == "victim"))
"""


def worker(address: str, role: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, "-c", WORKER, address, role]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_what_a_dead_or_hanging_process_held_goes_to_the_others(service: str, how: signal.Signals) -> None:
    victim = worker(service, "victim")
    assert victim.stdout is not None
    held = victim.stdout.readline().strip()
    victim.send_signal(how)
    try:
        survivor = worker(service, "survivor")
        out, _ = survivor.communicate(timeout=60)
        assert survivor.returncode == 0
        assert held in out.split()
        assert sorted(out.split()) == [f"s{n}" for n in range(6)]
    finally:
        victim.kill()
        victim.communicate()


async def test_a_service_that_vanishes_ends_the_run_after_the_grace_period() -> None:
    async def run() -> None:
        async with connect(address) as batch, batch.sample("a") as sample:
            waiting = asyncio.ensure_future(batch.sample("b").__aenter__())
            async with sample.inference():
                server.kill()
                with pytest.raises(coresched.SessionLostError):
                    await waiting

    def connect(address: str) -> Any:
        return coresched.connect(address, batch="b", sample_concurrency=1, grace_s=1)

    with served() as (address, server):
        with pytest.raises(coresched.SessionLostError, match="has not answered for 1 s"):
            await run()
        with pytest.raises(coresched.SessionLostError, match="has not answered for 1 s"):
            await connect(address).__aenter__()


async def test_other_options_for_the_same_batch_are_refused_by_name(service: str) -> None:
    async with coresched.connect(service, batch="options", sample_concurrency=2):
        with pytest.raises(ValueError, match="options must be those of the open batch 'options'"):
            await coresched.connect(service, batch="options", sample_concurrency=3).__aenter__()


async def test_a_restarted_harness_skips_what_has_ended(service: str) -> None:
    async with coresched.connect(service, batch="kept", sample_concurrency=2, keep_open=True) as batch:
        async with batch.sample("a"):
            pass
        with pytest.raises(ZeroDivisionError):
            async with batch.sample("b"):
                raise ZeroDivisionError
    async with coresched.connect(service, batch="kept", sample_concurrency=2) as batch:
        for name, state in (("a", "finished"), ("b", "withdrawn")):
            with pytest.raises(coresched.SampleEndedError) as ended:
                await batch.sample(name).__aenter__()
            assert ended.value.state == state
        async with batch.sample("c"):
            other = coresched.connect(service, batch="kept", sample_concurrency=2)
            async with other as second:
                with pytest.raises(coresched.SampleTakenError):
                    await second.sample("c").__aenter__()
    assert batch.report().totals.finished == 2
