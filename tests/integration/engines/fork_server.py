"""Runs programs in forks of a process that has imported an engine; the engine's Python runs this file.

    python fork_server.py LISTENER IMPORTS

LISTENER is the file descriptor of a Unix socket of kind SOCK_SEQPACKET, to which somebody has connected, and
IMPORTS a statement. Each connection is told `ready` and may send a request: an object in JSON with `command`
(a file, or `-m` and a module, and arguments), `directory` and `environment`, and with it the descriptors of
standard output and error. The answers are the process's id, and at its end its exit status. A connection
that closes earlier ends what it started. The server ends when nobody is connected any more.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

LONGEST_REQUEST = 200_000


class ForkServer:
    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._running: dict[socket.socket, int | None] = {}
        """The process of each connection that has one."""

    def serve(self) -> None:
        self._accept()
        while self._running:
            for key, _ in self._selector.select():
                happened: Callable[[], None] = key.data
                happened()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", credentials)[1] != os.getuid():  # such an address has no permissions
            connection.close()
            return
        self._running[connection] = None
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._receive(connection))
        with suppress(BrokenPipeError):
            connection.send(b"ready")

    def _receive(self, connection: socket.socket) -> None:
        try:
            request, files, _, _ = socket.recv_fds(connection, LONGEST_REQUEST, 2)
        except ConnectionResetError:
            request, files = b"", []
        if request:
            self._start(connection, json.loads(request), files)
            for file in files:
                os.close(file)
            return
        if (process := self._running.pop(connection)) is not None:
            end_group(process)
        self._selector.unregister(connection)
        connection.close()

    def _start(self, connection: socket.socket, request: dict[str, Any], files: list[int]) -> None:
        process = os.fork()
        if process == 0:
            self._selector.close()
            for each in (self._listener, *self._running):
                each.close()
            run(request, files)
        self._running[connection] = process
        answer(connection, process)
        handle = os.pidfd_open(process)
        self._selector.register(
            handle, selectors.EVENT_READ, lambda: self._ended(connection, process, handle)
        )

    def _ended(self, connection: socket.socket, process: int, handle: int) -> None:
        end_group(process)  # what it left behind
        _, status = os.waitpid(process, 0)
        self._selector.unregister(handle)
        os.close(handle)
        if connection in self._running:
            self._running[connection] = None
            answer(connection, os.waitstatus_to_exitcode(status))


def answer(connection: socket.socket, number: int) -> None:
    with suppress(BrokenPipeError):  # it will be found closed
        connection.send(str(number).encode())


def end_group(process: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def run(request: dict[str, Any], files: list[int]) -> None:
    """In the fork. Ends without taking down what was imported, which takes seconds."""
    os.setsid()
    status: Any = 1
    try:
        os.chdir(request["directory"])
        os.environ.clear()
        os.environ.update(request["environment"])
        for file, standard in zip(files, (1, 2), strict=True):
            os.dup2(file, standard)
            os.close(file)
        run_command(request["command"])
        status = 0
    except SystemExit as end:
        status = end.code
        if isinstance(status, str):
            print(status, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else status is not None)


def run_command(command: list[str]) -> None:
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        sys.path.insert(0, str(Path(command[0]).parent))
        runpy.run_path(command[0], run_name="__main__")


def main(listener: socket.socket, imports: str) -> None:
    del sys.path[0]  # this folder, where programs do not look for their modules
    exec(imports, {})
    gc.freeze()  # what is here already is not looked at, and so not copied, by the forks
    ForkServer(listener).serve()
    os._exit(0)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
