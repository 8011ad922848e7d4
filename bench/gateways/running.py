"""Gateways before fake workers, each ready once all of its workers answer through it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from time import monotonic

from bench.gateways import exchange
from bench.gateways.client import UnexpectedAnswerError, connections
from bench.gateways.processes import Program, free_port, started
from bench.peers.gateways import Gateway

_READY_IN_S = 60.0
_TRIES_EVERY_S = 0.1
_LABELS = [f"ready-{number}" for number in range(64)]


class SubjectFailedError(Exception):
    """A subject did not start, or not answer as it should; the message names it."""


@dataclass(frozen=True)
class Subject:
    """What a load is put on: a gateway, what it needs beside it, or without a program the worker itself."""

    name: str
    port: int
    program: Program | None = None
    beside: Program | None = None


@asynccontextmanager
async def running(gateways: Sequence[Gateway], workers: Sequence[int]) -> AsyncIterator[list[Subject]]:
    """All of these gateways before the workers at these ports. Raises SubjectFailedError."""
    urls = [f"http://127.0.0.1:{port}" for port in workers]
    async with AsyncExitStack() as stack:
        subjects = []
        for gateway in gateways:
            port, second = free_port(), free_port()
            beside = None
            if gateway.beside is not None:
                beside = stack.enter_context(started(gateway.beside(port, second, urls)))
                await _listening(gateway.name, beside, second)
            program = stack.enter_context(started(gateway.command(port, second, urls)))
            subjects.append(Subject(gateway.name, port, program, beside))
        await asyncio.gather(*(_ready(subject, len(workers)) for subject in subjects))
        yield subjects


async def _listening(name: str, program: Program, port: int) -> None:
    """Wait until the program accepts connections."""
    until = monotonic() + _READY_IN_S
    while monotonic() < until:
        if program.has_ended():
            raise SubjectFailedError(f"{name} ended: {program.last_words()}")
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(_TRIES_EVERY_S)
        else:
            writer.close()
            return
    raise SubjectFailedError(f"{name} did not listen in {_READY_IN_S:g} s: {program.last_words()}")


async def _ready(subject: Subject, workers: int) -> None:
    """Wait until each worker has answered."""
    until = monotonic() + _READY_IN_S
    why = ""
    while monotonic() < until:
        assert subject.program is not None
        if subject.program.has_ended():
            raise SubjectFailedError(f"{subject.name} ended: {subject.program.last_words()}")
        try:
            met = set(await placed(subject, _LABELS))
            if len(met) == workers:
                return
            why = f"only {len(met)} of {workers} workers answered"
        except (OSError, UnexpectedAnswerError) as error:
            why = str(error)
        await asyncio.sleep(_TRIES_EVERY_S)
    raise SubjectFailedError(f"{subject.name} was not ready in {_READY_IN_S:g} s: {why}")


async def placed(subject: Subject, labels: Sequence[str]) -> list[int]:
    """The worker of each label, one request after another, with nothing else in flight."""
    async with connections(subject.port, 1) as (connection,):
        return [await connection.send(request) for request in exchange.requests(labels)]
