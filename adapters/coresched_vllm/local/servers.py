"""`vllm serve` on this machine, several at once: booted, watched until they are healthy, and ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coresched_vllm.virtual.boot import ENVIRONMENT

BOOT_S: Final = 900.0
STOP_S: Final = 20.0
LAST_LINES: Final = 20
_LOOK_S: Final = 0.5

VARIABLES: Final = {
    **ENVIRONMENT,
    "OMP_NUM_THREADS": "1",  # several servers share the cores, and more threads wait for each other
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # on CPUs: no worker process beside the engine's own
    "VLLM_SERVER_DEV_MODE": "1",  # for POST /reset_prefix_cache
}
"""For every process of such a server, unless the environment says otherwise."""


class ServerError(Exception):
    """A server that did not start, or ended by itself. The message is one line; ``tail`` ends its log."""

    def __init__(self, message: str, tail: Sequence[str]) -> None:
        super().__init__(message)
        self.tail = tail


@dataclass(frozen=True)
class Server:
    """One server; its process leads a group of its own, which has all the others."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def check(self) -> None:
        """Raises ServerError if it has ended."""
        if (code := self.process.poll()) is not None:
            ended = f"exit code {code}" if code >= 0 else f"signal {-code}"
            raise ServerError(f"vLLM server {self.name} ended with {ended}", self.last_lines())

    def is_healthy(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.url}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def last_lines(self) -> list[str]:
        """Of its log, without what nanobind says at every end."""
        lines = self.log.read_text(errors="replace").splitlines()
        told = [line for line in lines if line and not line.startswith(("nanobind:", " - "))]
        return told[-LAST_LINES:]

    def kill(self) -> None:
        """SIGKILL for all its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Ask it to end; after STOP_S, or at a second Ctrl-C, what is left of it is killed."""
        try:
            self.process.terminate()  # its first process ends the others
            self.process.wait(STOP_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt, SystemExit):
            pass
        finally:
            self.kill()  # the group outlives its leader while it has a process


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def start(
    python: str,
    model: Path,
    flags: Sequence[str],
    *,
    name: str,
    port: int,
    log: Path,
    variables: Mapping[str, str] | None = None,
) -> Server:
    """A server that begins to boot, in the vLLM of the interpreter ``python``. It must be stopped.

    ``variables`` go before those of this process, and these before VARIABLES. The log is appended to.
    """
    if os.sep in python:  # else it is found on PATH; the server has another working directory
        python = os.path.abspath(python)
    command = [python, "-m", "vllm.entrypoints.cli.main", "serve", str(model.absolute()), *flags]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            env={**VARIABLES, **os.environ, **(variables or {})},
            cwd=log.parent,  # where vLLM drops a file, it is not left behind
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches this process only, which ends the server in order
        )
    return Server(name, port, process, log)


def wait_until_healthy(servers: Sequence[Server], timeout_s: float = BOOT_S) -> None:
    """Raises ServerError for one that ends before, or is not healthy in time."""
    deadline = time.monotonic() + timeout_s
    booting = list(servers)
    while booting:
        for server in servers:
            server.check()
        booting = [server for server in booting if not server.is_healthy()]
        if booting and time.monotonic() > deadline:
            late = booting[0]
            raise ServerError(f"vLLM server {late.name} is not up after {timeout_s:g} s", late.last_lines())
        time.sleep(_LOOK_S if booting else 0)


@contextmanager
def serving(
    python: str,
    model: Path,
    flags: Sequence[str],
    *,
    names: Sequence[str],
    folder: Path,
    ports: Sequence[int] | None = None,
    variables: Mapping[str, str] | None = None,
) -> Iterator[list[Server]]:
    """Equal servers, healthy, while the block runs; their logs are ``folder``/NAME.log.

    Raises ServerError.
    """
    with ExitStack() as stack:
        servers = []
        for name, port in zip(names, ports or [free_port() for _ in names], strict=True):
            server = start(
                python, model, flags, name=name, port=port, log=folder / f"{name}.log", variables=variables
            )
            stack.callback(server.stop)
            servers.append(server)
        wait_until_healthy(servers)
        yield servers
