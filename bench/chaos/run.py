"""One run: service, workers and harness processes, what is done to them, and what the checker finds."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import grpc

import coresched
from bench.chaos import checker
from bench.chaos.attempts import read_sessions
from bench.chaos.events import read_events
from bench.chaos.faults import Counts, Fault, draw
from bench.chaos.harness import BATCH, Place
from bench.chaos.harnesses import Harnesses, harnesses
from bench.chaos.outcome import Outcome, measured
from bench.chaos.servers import Server
from bench.chaos.settings import Settings
from coresched.client.credentials import channel
from coresched.client.local import BatchReport
from coresched.client.remote.attempts import CHANNEL_OPTIONS
from coresched.v1 import batches_pb2, router_pb2
from coresched.v1.batches_pb2_grpc import BatchesStub
from coresched.v1.router_pb2_grpc import RouterStub

_POLL_S = 0.1
_TO_EXPIRE_S = 2.0  # for the session to end once its grace period is over
_OWN_GRACE_S = 120.0  # of the run's own session, which keeps the batch open


@dataclass(slots=True)
class Crew:
    """Who takes part."""

    service: Server
    workers: list[Server]
    harnesses: Harnesses
    settings: Settings
    chance: random.Random


async def run(
    settings: Settings,
    counts: Counts,
    folder: Path,
    *,
    limit_s: float,
    tell: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Run it in an empty folder, which keeps journal and logs. `tell` is told how far it is.

    Raises RuntimeError if a process ends by itself, TimeoutError if all is not over after `limit_s` seconds,
    MalformedLogError if a harness was not consistent with itself.
    """
    chance = random.Random(settings.seed)
    faults = draw(counts, settings.samples, chance)
    async with _crew(settings, folder, chance) as crew:
        began_at = time.monotonic()
        try:
            report = await asyncio.wait_for(_play(crew, faults, tell), limit_s)
        except asyncio.TimeoutError:
            raise TimeoutError(f"the run was not over after {limit_s:g} s") from None
        wall_s = time.monotonic() - began_at
        in_flight = await _in_flight(crew.service.address)
        if (code := await crew.service.stop()) != 0:
            raise RuntimeError(f"the service ended with exit code {code}")
        died_at = {name: ended.at for name, ended in crew.harnesses.ended.items() if ended.code < 0}
        sessions = read_sessions(read_events(folder / "harnesses"), died_at, settings.grace_s)
        asked = checker.Asked(
            names=settings.names(),
            sample_concurrency=settings.sample_concurrency,
            environment_concurrency=settings.environment_concurrency,
            resident_concurrency=settings.resident_concurrency,
            grace_s=settings.grace_s,
        )
        findings = checker.check(asked, sessions, report, in_flight)
        for worker in crew.workers:
            await worker.stop()
        return Outcome(findings, measured(sessions, report, wall_s, crew.service, crew.workers))


@asynccontextmanager
async def _crew(settings: Settings, folder: Path, chance: random.Random) -> AsyncIterator[Crew]:
    """Everyone started; whoever still runs in the end is killed."""
    logs = folder / "harnesses"
    logs.mkdir()
    async with AsyncExitStack() as stack:
        workers = []
        for number in range(settings.workers):
            worker = Server("worker", ["--speed", f"{settings.speed:g}"], folder / f"worker-{number}.err")
            stack.callback(worker.kill)
            workers.append(worker)
        urls = [f"http://{worker.address}" for worker in workers]
        options = ["--journal", str(folder / "journal"), *(f"--worker={url}" for url in urls)]
        service = Server("serve", options, folder / "service.err")
        stack.callback(service.kill)
        await asyncio.gather(service.start(), *(worker.start() for worker in workers))
        place = Place(service=service.address, workers=urls, settings=settings)
        found = await stack.enter_async_context(harnesses(logs, place))
        yield Crew(service, workers, found, settings, chance)


async def _play(crew: Crew, faults: Sequence[Fault], tell: Callable[[str], None]) -> BatchReport:
    """Run the batch to its end; the service's report of it."""
    settings = crew.settings
    batch = coresched.connect(
        crew.service.address,
        batch=BATCH,
        sample_concurrency=settings.sample_concurrency,
        environment_concurrency=settings.environment_concurrency,
        resident_concurrency=settings.resident_concurrency,
        grace_s=_OWN_GRACE_S,
    )
    async with batch, channel(crew.service.address, options=CHANNEL_OPTIONS) as connection:
        await batch.submit(settings.names())
        for _ in range(settings.processes):
            crew.harnesses.start()
        stub = cast(Any, BatchesStub)(connection)
        stalls: list[asyncio.Task[None]] = []
        for fault in faults:
            await _finished(crew, stub, fault.at_finished, tell)
            await asyncio.sleep(fault.delay_s)
            tell(f"killing a {fault.target}" if fault.target != "stall" else "stalling a harness")
            if fault.target == "stall":
                stalls.append(asyncio.create_task(_stall(crew, _any_harness(crew))))
            else:
                await _kill(crew, fault)
        await _finished(crew, stub, settings.samples, tell)
        tell("all samples are finished; waiting for the harnesses to leave")
        await asyncio.gather(*stalls)
        await crew.harnesses.all_ended()
        _check_alive(crew)
    return batch.report()


async def _kill(crew: Crew, fault: Fault) -> None:
    if fault.target == "service":
        await crew.service.kill_and_restart()
    elif fault.target == "worker":
        await crew.chance.choice(crew.workers).kill_and_restart()
    else:
        await crew.harnesses.kill(_any_harness(crew))
        crew.harnesses.start()


async def _stall(crew: Crew, process: str) -> None:
    """Until the service has given up its session: a service started anew waits for it anew."""
    crew.harnesses.stall(process)
    stalled_at = time.monotonic()
    grace_s = crew.settings.grace_s
    while time.monotonic() < max(stalled_at, crew.service.started_at) + grace_s + _TO_EXPIRE_S:
        await asyncio.sleep(_POLL_S)
    crew.harnesses.wake(process)


def _any_harness(crew: Crew) -> str:
    running = [name for name in crew.harnesses.running if name not in crew.harnesses.stalled]
    return crew.chance.choice(running)


async def _finished(crew: Crew, stub: Any, samples: int, tell: Callable[[str], None]) -> None:
    """Return once so many samples are finished."""
    while True:
        _check_alive(crew)
        with suppress(grpc.aio.AioRpcError):
            answer = await stub.ListBatches(batches_pb2.ListBatchesRequest(), timeout=10)
            progress = answer.batches[0]
            tell(
                f"{progress.finished:,} of {progress.samples:,} finished, {progress.admitted} admitted, "
                f"{progress.environment_running} environment stages run, {progress.environment_queued} wait"
            )
            if progress.finished >= samples:
                return
        await asyncio.sleep(_POLL_S)


def _check_alive(crew: Crew) -> None:
    crew.harnesses.check_alive()
    for server in (crew.service, *crew.workers):
        server.check_alive()


async def _in_flight(address: str) -> dict[str, int]:
    async with channel(address) as connection:
        stub = cast(Any, RouterStub)(connection)
        answer = await stub.ListWorkers(router_pb2.ListWorkersRequest(), timeout=10)
    return {worker.worker: worker.in_flight for worker in answer.workers}
