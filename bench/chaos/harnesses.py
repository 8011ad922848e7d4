"""The harness processes of a run: started, killed and stalled through the zygote."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bench.chaos.harness import Place
from bench.chaos.servers import CHECKOUT, ENVIRONMENT
from bench.chaos.zygote import Ended, Order, Setup, Signal, Start


class Harnesses:
    """`running` are those not known to have ended, in order of start; `ended` the others, by name."""

    def __init__(self, zygote: asyncio.subprocess.Process, folder: Path) -> None:
        self.running: dict[str, None] = {}
        self.ended: dict[str, Ended] = {}
        self.stalled: set[str] = set()
        self._zygote = zygote
        self._folder = folder
        self._started = 0
        self._change = asyncio.Event()

    def start(self) -> None:
        process = f"harness-{self._started:03}"
        self._started += 1
        self.running[process] = None
        self._order(Start(process))

    async def kill(self, process: str) -> None:
        """Send SIGKILL, and return once the process has ended."""
        self._order(Signal(process, signal.SIGKILL))
        while process not in self.ended:
            await self._next()

    def stall(self, process: str) -> None:
        """Stop the process until `wake`. Nothing of it runs then, heartbeats neither."""
        self.stalled.add(process)
        self._order(Signal(process, signal.SIGSTOP))

    def wake(self, process: str) -> None:
        self._order(Signal(process, signal.SIGCONT))
        self.stalled.discard(process)

    async def all_ended(self) -> None:
        while self.running:
            await self._next()

    def check_alive(self) -> None:
        """Raises RuntimeError if a process has ended by an error of its own: what it wrote."""
        if self._zygote.returncode is not None:
            raise RuntimeError(f"bench.chaos.zygote ended with exit code {self._zygote.returncode}")
        for process, ended in self.ended.items():
            if ended.code not in (0, -signal.SIGKILL):
                errors = (self._folder / f"{process}.err").read_text(errors="replace")
                raise RuntimeError(f"{process} ended with exit code {ended.code}: {errors}")

    async def read(self) -> None:
        """Take in what the zygote says, until it ends."""
        assert self._zygote.stdout is not None
        async for line in self._zygote.stdout:
            ended = msgspec.json.decode(line, type=Ended)
            del self.running[ended.process]
            self.ended[ended.process] = ended
            self._change.set()

    async def _next(self) -> None:
        self._change.clear()
        await self._change.wait()

    def _order(self, order: Order) -> None:
        assert self._zygote.stdin is not None
        self._zygote.stdin.write(msgspec.json.encode(order) + b"\n")


@asynccontextmanager
async def harnesses(folder: Path, place: Place) -> AsyncIterator[Harnesses]:
    """Harness processes to be started; those that still run in the end are killed."""
    zygote = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.chaos.zygote"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=CHECKOUT,
        env=ENVIRONMENT,
    )
    assert zygote.stdin is not None
    zygote.stdin.write(msgspec.json.encode(Setup(str(folder), place)) + b"\n")
    found = Harnesses(zygote, folder)
    reading = asyncio.create_task(found.read())
    try:
        yield found
    finally:
        zygote.stdin.close()
        await zygote.wait()
        await reading
