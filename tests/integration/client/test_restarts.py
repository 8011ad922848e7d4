"""A run goes on when its service is killed and started again with its journal."""

import asyncio
import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from served import served

import coresched
from coresched import sync

SAMPLES, TURNS = 24, 4
LIMITS = {"sample_concurrency": 6, "environment_concurrency": 2}


class Service:
    """A service at one address with one journal, however often it is started."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.address = f"unix:{directory}/s"
        self._journal = str(directory / "journal.sqlite3")
        self._stack = stack
        self.start()

    def start(self) -> None:
        options = ("--journal", self._journal, "--worker", "w0")
        _, self._process = self._stack.enter_context(served(*options, listen=self.address))

    def restart(self, how: signal.Signals) -> None:
        self._process.send_signal(how)
        self._process.wait(20)
        self.start()


def restart_twice(service: Service, how: signal.Signals) -> None:
    for _ in range(2):
        time.sleep(0.15)  # into the run
        service.restart(how)


def check(batch: Any) -> None:
    totals = batch.report().totals
    assert (totals.samples, totals.finished, totals.readmissions) == (SAMPLES, SAMPLES, 0)
    assert (totals.turns, totals.environment_stages) == (SAMPLES * TURNS, SAMPLES * TURNS)
    assert totals.resident_s > totals.inference_s + totals.environment_s
    assert (totals.resident_queued, totals.resident) == (0, 0)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_asyncio(tmp_path: Path, how: signal.Signals) -> None:
    async def run(name: str) -> None:
        async with batch.sample(name) as sample, sample.resident():
            for _ in range(TURNS):
                async with sample.inference() as turn:
                    assert turn.worker == "w0"
                    await asyncio.sleep(0.02)
                async with sample.environment():
                    await asyncio.sleep(0.02)

    with ExitStack() as stack:
        service = Service(tmp_path, stack)
        async with coresched.connect(service.address, batch="b", resident_concurrency=4, **LIMITS) as batch:
            restarts = asyncio.ensure_future(asyncio.to_thread(restart_twice, service, how))
            await asyncio.gather(*(run(f"s{n}") for n in range(SAMPLES)))
            await restarts
    check(batch)


def test_threads(tmp_path: Path) -> None:
    def run(name: str) -> None:
        with batch.sample(name) as sample, sample.resident():
            for _ in range(TURNS):
                with sample.inference():
                    time.sleep(0.02)
                with sample.environment():
                    time.sleep(0.02)

    with ExitStack() as stack, ThreadPoolExecutor(8) as pool:
        service = Service(tmp_path, stack)
        with sync.connect(service.address, batch="b", resident_concurrency=4, **LIMITS) as batch:
            restarts = pool.submit(restart_twice, service, signal.SIGKILL)
            list(pool.map(run, [f"s{n}" for n in range(SAMPLES)]))
            restarts.result()
    check(batch)


async def test_a_tenant_needs_its_token(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps([{"tenant": "blue", "token": "b" * 32}]))
    with served("--tokens", str(tokens)) as (address, _):
        options: dict[str, Any] = {"batch": "b", "sample_concurrency": 1}
        async with coresched.connect(address, token="b" * 32, **options) as batch, batch.sample("a"):
            pass
        assert batch.report().totals.finished == 1
        with pytest.raises(coresched.ServiceError) as refused:
            await coresched.connect(address, token="r" * 32, **options).__aenter__()
        assert refused.value.code == "UNAUTHENTICATED"
        with pytest.raises(coresched.ServiceError), sync.connect(address, token="r" * 32, **options):
            pass
