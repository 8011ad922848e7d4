"""Server processes of a benchmark, and the CPU time that each has used."""

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench.cases.lbch import worker_names
from coresched.errors import InputError

WORKERS = 8


def our_server(listen: str) -> list[str]:
    """`coresched serve` with eight workers, without journal and tokens."""
    workers = [f"--worker={name}" for name in worker_names(WORKERS)]
    return [sys.executable, "-m", "coresched", "serve", "--listen", listen, "--journal", "none", *workers]


def echo_server(listen: str) -> list[str]:
    return [sys.executable, "-m", "bench.peers.echo", listen]


class ServerProcess:
    """A server that accepts connections at ``address``."""

    def __init__(self, address: str, pid: int) -> None:
        self.address = address
        self._clock = process_clock(pid)

    def cpu_s(self) -> float:
        """CPU seconds of all its threads since it started, user and system."""
        return time.clock_gettime(self._clock)


@contextmanager
def cores_apart() -> Iterator[set[int]]:
    """Keep this process to one core, and give another for the servers; the same one if there are no two.

    Where the system puts them by itself differs from server to server, and more than the servers do.
    """
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(usable)})
    try:
        yield {max(usable)}
    finally:
        os.sched_setaffinity(0, usable)


@contextmanager
def running(command: Sequence[str], cores: set[int]) -> Iterator[ServerProcess]:
    """The server that this command starts, on these cores, once it printed its address; killed in the end."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            os.sched_setaffinity(process.pid, cores)  # before it has a second thread
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the server of the benchmark did not start: {' '.join(command)}")
            yield ServerProcess(line.split()[-1], process.pid)
        finally:
            process.kill()


def require_clocks() -> None:
    """Raises InputError where the system tells no CPU clock of another process, or has no cores to choose."""
    if not (hasattr(os, "sched_setaffinity") and hasattr(ctypes.CDLL(None), "clock_getcpuclockid")):
        raise InputError(
            f"service reads the CPU clocks of its servers, and {sys.platform} has none; run it on Linux"
        )


def process_clock(pid: int) -> int:
    """The CPU clock of a process: in nanoseconds, where /proc/PID/stat counts in steps of 10 ms."""
    clock = ctypes.c_int()
    failed = ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock))
    if failed:
        raise ProcessLookupError(f"process {pid} has no CPU clock, error {failed}")
    return clock.value
