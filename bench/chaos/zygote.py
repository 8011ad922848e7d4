"""Forks harness processes from one that has everything imported, and has not used gRPC yet.

Told what to do by JSON lines on standard input, it says by JSON lines on standard output who has ended. At
the end of the input it kills what still runs, so that nothing outlives the process that started it.
"""

from __future__ import annotations

import asyncio
import gc
import os
import select
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

import msgspec

import coresched.client.remote.async_batch as _imported_once_for_all  # noqa: F401
from bench.chaos.events import EventLog
from bench.chaos.harness import Place, run_harness

_POLL_S = 0.02


class Setup(msgspec.Struct, frozen=True):
    """The first line: where harness processes work, and the folder of what they write."""

    folder: str
    place: Place


class Start(msgspec.Struct, frozen=True, tag="start"):
    process: str


class Signal(msgspec.Struct, frozen=True, tag="signal"):
    """Nothing happens if the process has ended."""

    process: str
    number: int


class Ended(msgspec.Struct, frozen=True):
    """A process has ended, no later than `at`; `code` is its exit code, or below 0 the signal's number."""

    process: str
    code: int
    at: float


Order = Start | Signal


class Zygote:
    def __init__(self, setup: Setup) -> None:
        self._folder = Path(setup.folder)
        self._place = setup.place
        self._running: dict[str, int] = {}

    def obey(self, order: Order) -> None:
        if isinstance(order, Start):
            pid = os.fork()
            if pid == 0:
                self._child(order.process)
            self._running[order.process] = pid
        elif order.process in self._running:
            os.kill(self._running[order.process], order.number)

    def reap(self) -> list[Ended]:
        ended = []
        for process, pid in list(self._running.items()):
            reaped, status = os.waitpid(pid, os.WNOHANG)
            if reaped:
                del self._running[process]
                ended.append(Ended(process, os.waitstatus_to_exitcode(status), time.monotonic()))
        return ended

    def kill_all(self) -> None:
        for pid in self._running.values():
            os.kill(pid, signal.SIGKILL)
        for pid in self._running.values():
            os.waitpid(pid, 0)

    def _child(self, process: str) -> NoReturn:
        code = 1
        try:
            errors = os.open(self._folder / f"{process}.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            for standard, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, errors), (2, errors)):
                os.dup2(file, standard)
            asyncio.run(run_harness(self._place, EventLog(self._folder / f"{process}.jsonl")))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)


def main() -> None:
    given = b""
    zygote: Zygote | None = None
    orders = msgspec.json.Decoder(Order)
    try:
        while True:
            if select.select([0], [], [], _POLL_S)[0]:
                read = os.read(0, 65536)
                if not read:
                    return
                given += read
            *lines, given = given.split(b"\n")
            for line in lines:
                if zygote is None:
                    zygote = Zygote(msgspec.json.decode(line, type=Setup))
                    gc.freeze()  # what the children share is never copied for the collector's sake
                else:
                    zygote.obey(orders.decode(line))
            for ended in zygote.reap() if zygote is not None else ():
                os.write(1, msgspec.json.encode(ended) + b"\n")
    finally:
        if zygote is not None:
            zygote.kill_all()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started it, which ends it
    main()
