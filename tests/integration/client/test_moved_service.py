"""A run goes on when its service is started anew with its journal in another place, which is looked up."""

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from served import served

import coresched
from coresched import sync
from coresched.client.gate import Gate
from coresched.client.lookup import Lookup
from coresched.client.remote.options import Connection

LIMITS: dict[str, Any] = {"sample_concurrency": 2, "environment_concurrency": 1}


class Moving(Lookup):
    """A service with one journal, on another port each time it is started."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._journal = str(folder / "journal.sqlite3")
        self._stack = stack
        self.asked = 0
        self._target = ""
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def __str__(self) -> str:
        return "the moving service"

    def find(self, within_s: float) -> Connection:
        self.asked += 1
        if not self._target:
            raise ConnectionError("it is on its way")
        return Connection(target=self._target)

    def start(self) -> None:
        started = self._stack.enter_context(served("--journal", self._journal, "--worker", "w0"))
        self._target, self._process = started

    def stop(self) -> None:
        assert self._process is not None
        self._target = ""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(20)

    def move(self) -> None:
        self.stop()
        self.start()


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Moving]:
    with ExitStack() as stack:
        yield Moving(tmp_path, stack)


async def test_asyncio(moving: Moving) -> None:
    async def run(name: str) -> None:
        async with batch.sample(name) as sample, sample.environment():
            await asyncio.sleep(0.05)

    async with coresched.connect(moving, batch="b", **LIMITS) as batch:
        async with batch.sample("first") as first:
            waiting = [asyncio.create_task(run(f"s{number}")) for number in range(8)]
            await asyncio.sleep(0.1)  # their calls wait at the service
            await asyncio.to_thread(moving.move)
            async with first.inference() as turn:
                assert turn.worker == "w0"
        await asyncio.gather(*waiting)
    totals = batch.report().totals
    assert (totals.finished, totals.readmissions, totals.environment_stages) == (9, 0, 8)
    assert moving.asked < 50  # those who wait share a lookup


def test_threads(moving: Moving) -> None:
    def run(name: str) -> None:
        with batch.sample(name) as sample, sample.environment():
            pass

    with ThreadPoolExecutor(8) as pool, sync.connect(moving, batch="b", **LIMITS) as batch:
        with batch.sample("first") as first:
            waiting = [pool.submit(run, f"s{number}") for number in range(8)]
            moving.move()
            with first.inference() as turn:
                assert turn.worker == "w0"
        for one in waiting:
            one.result()
    totals = batch.report().totals
    assert (totals.finished, totals.readmissions, totals.environment_stages) == (9, 0, 8)


async def test_a_gate(moving: Moving) -> None:
    gate = Gate(service=moving, batch="b", **LIMITS)
    with gate.sample("a"):
        await asyncio.to_thread(moving.move)
    gate.close()
    assert gate.report().totals.finished == 1


async def test_a_service_that_stays_away_is_given_up_with_what_the_lookup_said(moving: Moving) -> None:
    expected = "the moving service has not answered for 1 s (UNAVAILABLE: it is on its way)"
    batch = coresched.connect(moving, batch="b", grace_s=1, **LIMITS)
    blocking = sync.connect(moving, batch="b", grace_s=1, **LIMITS)
    moving.stop()
    with pytest.raises(coresched.SessionLostError) as lost:
        await batch.__aenter__()
    assert str(lost.value) == expected
    with pytest.raises(coresched.SessionLostError) as lost:
        blocking.__enter__()
    assert str(lost.value) == expected


def test_how_to_connect_is_the_lookups(moving: Moving) -> None:
    for connect in (coresched.connect, sync.connect):
        with pytest.raises(ValueError, match="ca must be left out, since the moving service says how"):
            connect(moving, batch="b", ca="ca.pem", **LIMITS)
