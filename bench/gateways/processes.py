"""Programs under test: started, watched through /proc, and ended whatever happens."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from coresched.errors import InputError

_ENDS_IN_S = 5.0


class Program:
    """A running program. What it costs includes its children, as far as they live."""

    def __init__(self, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        self._process = process
        self._log = log

    def cpu_s(self) -> float:
        """CPU time since its start, user and system, of all threads: what stat's utime and stime round."""
        return sum(time.clock_gettime(_cpu_clock(pid)) for pid in self._tree())

    def resident_bytes(self) -> int:
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self._tree())
        return pages * os.sysconf("SC_PAGE_SIZE")

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def last_words(self) -> str:
        """The end of what it has printed, on one line."""
        self._log.seek(0)
        return " ".join(self._log.read()[-400:].decode(errors="replace").split()) or "it printed nothing"

    def end(self) -> None:
        """SIGTERM, and SIGKILL if it takes too long; for all of its process group."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(_ENDS_IN_S)
            except subprocess.TimeoutExpired:
                continue
            except ProcessLookupError:
                self._process.wait()
            return

    def _tree(self) -> list[int]:
        found = [self._process.pid]
        for pid in found:
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                found.extend(map(int, children.read_text().split()))
        return found


def _cpu_clock(pid: int) -> int:
    """Linux's clock of the CPU time of another process, as clock_getcpuclockid(3) makes it."""
    return ~pid << 3 | 2


def check_system() -> None:
    """InputError where CPU time and memory of other processes cannot be read."""
    if sys.platform != "linux":
        raise InputError(f"gateway reads /proc of Linux, got {sys.platform}; run it in a Linux container")


@contextmanager
def started(command: Sequence[str]) -> Iterator[Program]:
    """The program in a process group of its own, its output in a file that nobody keeps."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        program = Program(process, log)
        try:
            yield program
        finally:
            program.end()


@contextmanager
def fake_workers(count: int) -> Iterator[list[int]]:
    """The ports of that many fake workers, in one process that ends with this one."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.gateways.worker", str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield [int(port) for port in process.stdout.readline().split()]
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def free_port() -> int:
    """A port that was free just now, for a program that cannot take any free one and tell."""
    with socket.socket() as trying:
        trying.bind(("127.0.0.1", 0))
        port: int = trying.getsockname()[1]
        return port
