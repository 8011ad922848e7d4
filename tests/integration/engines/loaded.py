"""Programs in a process that has an engine imported already, which takes up to half a minute otherwise.

The first that runs one starts a server (fork_server.py), which all processes of a test run share. It ends
with the last of them.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from integration.engines.environment import EngineEnvironment

RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
"""The same in all processes of a test run."""


@dataclass(frozen=True)
class LoadedProcess:
    """A program that runs, in a process group of its own."""

    pid: int
    command: Sequence[str]
    _connection: socket.socket

    def wait(self, timeout_s: float) -> int:
        """Its exit status, once. Raises subprocess.TimeoutExpired where it has not ended by then."""
        self._connection.settimeout(timeout_s)
        try:
            status = self._connection.recv(100)
        except (TimeoutError, BlockingIOError):
            raise subprocess.TimeoutExpired(self.command, timeout_s) from None
        assert status, f"what ran {self.command} has ended"
        return int(status)


@contextmanager
def start_loaded(
    engine: EngineEnvironment,
    *command: str | Path,
    output: IO[bytes],
    errors: IO[bytes],
    environment: Mapping[str, str] | None = None,
) -> Iterator[LoadedProcess]:
    """What ``engine.python()`` does, given this command: a file, or ``-m`` and a module; and arguments.

    The program starts in the root directory, with this process's environment variables and the engine's, or
    else with ``environment``; of these, what Python (but for PYTHONPATH) or the engine read when they are
    started or imported has no effect. Handlers at its exit do not run. It ends with the block, and at its
    end all processes of its group do.
    """
    words = [str(word) for word in command]
    if environment is None:
        environment = {**os.environ, **engine.variables}
    request = {"command": words, "directory": "/", "environment": dict(environment)}
    _keep_server(engine)
    with _connected(engine) as connection:
        files = [output.fileno(), errors.fileno()]
        socket.send_fds(connection, [json.dumps(request).encode()], files)
        yield LoadedProcess(int(connection.recv(100)), words, connection)


def run_loaded(
    engine: EngineEnvironment,
    *command: str | Path,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 1_800,
) -> subprocess.CompletedProcess[str]:
    """Start such a program and wait for its end, as subprocess.run does."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        with start_loaded(engine, *command, output=output, errors=errors, environment=environment) as process:
            status = process.wait(timeout_s)
        return subprocess.CompletedProcess(process.command, status, _text(output), _text(errors))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


@functools.cache
def _keep_server(engine: EngineEnvironment) -> socket.socket:
    """A connection that keeps the server until this process ends; starts it if there is none."""
    python = engine.python()
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            try:
                listener.bind(_address(engine))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                listener.listen(100)
                return _start(engine, python, listener)
        try:
            return _connected(engine)
        except (ConnectionError, EOFError):  # it has ended, or does not listen yet
            time.sleep(0.1)


def _start(engine: EngineEnvironment, python: Path, listener: socket.socket) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(_address(engine))
    server = Path(__file__).with_name("fork_server.py")
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [python, server, str(listener.fileno()), engine.imports],
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **engine.variables},
            cwd="/",
            start_new_session=True,
        )
        listener.close()
        assert connection.recv(100) == b"ready", f"{engine.name} ended with {process.wait()}: {_text(log)}"
    process.returncode = 0  # it may outlive this process, and nobody waits for it
    return connection


def _connected(engine: EngineEnvironment) -> socket.socket:
    """A connection to the server, which is ready. Raises EOFError or ConnectionError where it ends before."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(_address(engine))
        if connection.recv(100) != b"ready":
            raise EOFError
    except BaseException:
        connection.close()
        raise
    return connection


def _address(engine: EngineEnvironment) -> str:
    """In Linux's abstract namespace: it is gone with the server, and may be longer than a path."""
    imports = hashlib.sha256(engine.imports.encode()).hexdigest()[:8]
    return f"\0coresched-{engine.name}-{imports}-{RUN}"
