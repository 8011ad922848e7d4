"""SGLang servers on the simulated device, started as a person starts them, by `coresched sglang-sim`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from integration.sglang_engine.environment import OFFLINE
from process_table import descendants

from coresched.capacity.summary import WorkloadSummary

MEMORY, WEIGHTS, FRACTION = "80GiB", "68.75GiB", 0.9  # leaves 3.25 GiB for the pools
WORKLOAD = WorkloadSummary("3/5", "500/700", "60", "60/150", samples=40)
"""What the shared server's flags are planned for."""

SPEED = 20.0

HEALTHY_S = 1200
"""Ten times what a start takes on two cores that others use too."""

STOP_S = 30


@dataclass(frozen=True)
class EngineServer:
    """A healthy server. ``process`` is the command's; the server's own processes are its descendants.

    ``line`` is what the command printed.
    """

    url: str
    line: str
    log: Path
    process: subprocess.Popen[str]


@contextmanager
def boot(
    python: Path,
    model_config: Path,
    flags: Sequence[str],
    *,
    log: Path,
) -> Iterator[EngineServer]:
    """A server for a config.json with SGLang's ``flags``; its processes have ended when the block has.

    Fails with the end of ``log`` if the server does not become healthy.
    """
    port = _free_port()
    command = [python, "-m", "coresched", "sglang-sim", "--model-config", model_config, "--log", log]
    command += ["--memory", MEMORY, "--weights", WEIGHTS, "--speed", str(SPEED)]
    command += ["--start-timeout-s", str(HEALTHY_S)]
    process = subprocess.Popen(
        [*command, "--", "--port", str(port), *flags],
        env={**os.environ, **OFFLINE},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield EngineServer(f"http://127.0.0.1:{port}", _line(process), log, process)
    finally:
        _end(process)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _line(process: subprocess.Popen[str]) -> str:
    """What it says when the server is healthy; it waits no longer for that than it was told."""
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    assert "listening on" in line, f"the server did not start: {line}{process.stderr.read()}"
    return line


def _end(process: subprocess.Popen[str]) -> None:
    """Ask the command to end its server; where it does not, end the server's processes too."""
    groups = {process.pid}
    for child in descendants(process.pid):
        with suppress(ProcessLookupError):
            groups.add(os.getpgid(child))
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        for group in groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
