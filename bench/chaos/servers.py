"""`coresched serve` and `coresched worker` as processes, killed and started again on the same port."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(CHECKOUT)}  # whatever the working directory

_START_S = 60.0
_STOP_S = 30.0


def free_port() -> int:
    """A port below those that systems give to outgoing connections.

    Else one of these might take the port while its server is dead, or even connect to itself there.
    """
    while True:
        port = random.randint(15_000, 30_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class Server:
    """One server process at a time. `cpu_s` are the CPU seconds of those that have ended."""

    def __init__(self, command: str, options: Sequence[str], errors: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.cpu_s = 0.0
        self.started_at = 0.0
        """When it listened last, on time.monotonic."""
        self.restarts: list[float] = []
        """Seconds from each kill until it listened again."""
        self._command = [sys.executable, "-m", "coresched", command, "--listen", self.address, *options]
        self._errors = errors
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Return once it listens. Raises RuntimeError with what it wrote if it does not."""
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=errors, env=ENVIRONMENT, cwd=CHECKOUT
            )
        assert self._process.stdout is not None
        line = await asyncio.wait_for(asyncio.to_thread(self._process.stdout.readline), _START_S)
        if b": listening on " not in line:
            raise RuntimeError(f"{self._command} did not start: {self._errors.read_text(errors='replace')}")
        self.started_at = time.monotonic()

    def check_alive(self) -> None:
        """Raises RuntimeError with what it wrote if it has ended by itself."""
        if self._process is not None and self._reap(os.WNOHANG):
            raise RuntimeError(f"{self._command} has ended: {self._errors.read_text(errors='replace')}")

    async def kill_and_restart(self) -> None:
        killed_at = time.monotonic()
        self.kill()
        await self.start()
        self.restarts.append(self.started_at - killed_at)

    def kill(self) -> None:
        """SIGKILL, if it runs; return once it has ended."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._reap(0)

    async def stop(self) -> int:
        """SIGTERM; its exit code. Raises TimeoutError if it goes on."""
        assert self._process is not None
        process = self._process
        os.kill(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        while not self._reap(os.WNOHANG):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._command} did not stop in {_STOP_S:g} s")
            await asyncio.sleep(0.02)
        return process.returncode

    def _reap(self, options: int) -> bool:
        assert self._process is not None
        process = self._process
        pid, status, usage = os.wait4(process.pid, options)
        if not pid:
            return False
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.stdout is not None
        process.stdout.close()
        self._process = None
        self.cpu_s += usage.ru_utime + usage.ru_stime
        return True
