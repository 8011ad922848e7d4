"""What the set-ups run on: healthy servers of some engine, and the service beside them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.gateways.processes import Program
from coresched.lab.replay.endpoint import Endpoint

STOP_S = 60.0


class NoServerError(RuntimeError):
    """A server that did not start; the message is the last of what it printed."""


@dataclass(frozen=True)
class Engines:
    """Healthy servers."""

    endpoints: Sequence[Endpoint]
    programs: Sequence[Program]

    def cpu_s(self) -> float:
        """CPU seconds of all their processes since they started."""
        return sum(program.cpu_s() for program in self.programs)


class EngineKind(Protocol):
    """How servers of one engine are booted, and what is told of them."""

    @property
    def title(self) -> str:
        """The engine with its version, and what its servers are."""

    @property
    def sample_concurrency(self) -> int:
        """C_S of the runs that admit samples apart from environment slots."""

    @property
    def label_capacity(self) -> int:
        """C_A of a server that runs as planned."""

    @property
    def token_ids(self) -> tuple[int, int]:
        """From LOW up to, not including, HIGH."""

    @property
    def speed(self) -> float:
        """How many times as fast as real ones the servers are."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """For the results in JSON."""

    def booted(self, *, planned: bool) -> AbstractContextManager[Engines]:
        """Servers, as they come or as planned, with routing-prefix. Raises NoServerError."""


@contextmanager
def service(workers: Sequence[str]) -> Iterator[str]:
    """`coresched serve` for these workers, with a journal, and its address. Raises NoServerError."""
    command = [sys.executable, "-m", "coresched", "serve", "--listen", "127.0.0.1:0"]
    command += [f"--worker={worker}" for worker in workers]
    with tempfile.TemporaryFile() as log, tempfile.TemporaryDirectory() as folder:
        command += ["--journal", str(Path(folder) / "journal.sqlite3")]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                words = Program(process, log).last_words()
                raise NoServerError(f"coresched serve did not start: {words}")
            yield line.split()[-1].decode()
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end, and through it the processes that it has started in other groups."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
