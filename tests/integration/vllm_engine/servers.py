"""`vllm serve` with a tiny model and the adapter, in forks of a process that has vLLM loaded."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
from integration.engines.loaded import LoadedProcess, start_loaded
from integration.vllm_engine.environment import OFFLINE, VLLM
from integration.vllm_engine.tiny_servers import FLAGS
from process_table import descendants, wait_until_gone

BOOT_S = 1_200.0
STOP_S = 60.0
DEVELOPED = {"VLLM_SERVER_DEV_MODE": "1"}
"""For POST /reset_prefix_cache."""


@dataclass(frozen=True)
class Server:
    """``process`` is its front end's, and leads a group that has the others."""

    name: str
    port: int
    process: LoadedProcess
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_until_healthy(self) -> None:
        """Fails with its log where it ends before, or does not answer in BOOT_S."""
        until = time.monotonic() + BOOT_S
        while time.monotonic() < until:
            with suppress(subprocess.TimeoutExpired):
                status = self.process.wait(0.5)
                raise AssertionError(f"status {status}: {self.log.read_text(errors='replace')[-8_000:]}")
            with suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/health", timeout=5).status_code == 200:
                    return
        raise AssertionError(self.log.read_text(errors="replace")[-8_000:])

    def kill(self) -> None:
        """SIGKILL for all its processes, which are gone then."""
        processes = {self.process.pid, *descendants(self.process.pid)}
        os.killpg(self.process.pid, signal.SIGKILL)
        wait_until_gone(processes)


@contextmanager
def booting(name: str, model: Path, log: Path, port: int | None = None) -> Iterator[Server]:
    """A server that begins to boot, and has ended when the block has.

    Its engine has a process of its own, as always; the model is in that one, for on a CPU vLLM would start
    another for it, and each loads vLLM again. The log is appended to.
    """
    port = port or free_port()
    command = ("-m", "vllm.entrypoints.cli.main", "serve", model, *FLAGS)
    command += ("--host", "127.0.0.1", "--port", str(port))
    environment = {**os.environ, **OFFLINE, **DEVELOPED}
    with (
        log.open("ab") as output,
        start_loaded(VLLM, *command, output=output, errors=output, environment=environment) as process,
    ):
        yield Server(name, port, process, log)
        with suppress(ProcessLookupError):  # it was killed
            os.kill(process.pid, signal.SIGTERM)
        process.wait(STOP_S)


@contextmanager
def serving(names: Sequence[str], model: Path, folder: Path) -> Iterator[list[Server]]:
    """Equal servers, healthy, while the block runs; their logs are ``folder``/NAME.log."""
    with ExitStack() as stack:
        servers = [stack.enter_context(booting(name, model, folder / f"{name}.log")) for name in names]
        for server in servers:
            server.wait_until_healthy()
        yield servers


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
