"""`vllm serve` with a tiny model and the adapter."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from integration.engines.loaded import LoadedProcess, run_loaded, start_loaded
from integration.vllm_engine.environment import HERE, OFFLINE, VLLM

MODEL_NAME = "tiny"
SMALL = (
    *("--dtype", "float32", "--max-model-len", "2048", "--enforce-eager", "--max-num-seqs", "2"),
    *("--max-num-batched-tokens", "512", "--kv-cache-memory-bytes", "67108864"),
)
"""Flags of a server for `write_model`'s model, which runs two requests at a time."""

BOOT_S = 1_200.0
STOP_S = 60.0


@dataclass(frozen=True)
class Server:
    """A healthy server; ``process`` is its front end's."""

    url: str
    process: LoadedProcess


def write_model(folder: Path) -> Path:
    """A model directory with a tokenizer; see tiny_model.py."""
    done = run_loaded(VLLM, HERE / "tiny_model.py", folder)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@contextmanager
def serving(model: Path, flags: Sequence[str] = SMALL) -> Iterator[Server]:
    """`vllm serve`, which has ended when the block has. Fails with its log if it does not start.

    Its engine has a process of its own, as always; the model is in that one, for on a CPU vLLM would start
    another for it, and each loads vLLM again.
    """
    port = free_port()
    command = ("-m", "vllm.entrypoints.cli.main", "serve", model, "--served-model-name", MODEL_NAME, *flags)
    command += ("--host", "127.0.0.1", "--port", str(port))
    environment = {**os.environ, **OFFLINE}
    with (
        tempfile.TemporaryFile() as log,
        start_loaded(VLLM, *command, output=log, errors=log, environment=environment) as process,
    ):
        url = f"http://127.0.0.1:{port}"
        if not healthy(url, process):
            log.seek(0)
            raise AssertionError(log.read()[-8_000:].decode())
        yield Server(url, process)
        os.kill(process.pid, signal.SIGTERM)
        process.wait(STOP_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def healthy(url: str, process: LoadedProcess) -> bool:
    """Once it answers; False where it ends before, or does not in BOOT_S."""
    until = time.monotonic() + BOOT_S
    while time.monotonic() < until:
        try:
            process.wait(1)
        except subprocess.TimeoutExpired:
            pass
        else:
            return False
        try:
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return True
        except httpx.TransportError:
            pass
    return False
