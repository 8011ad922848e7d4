"""The template: the process that has the engine loaded, and from which the engines' processes are forked.

Importing an engine takes most of a boot, and is done here once.
"""

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

from coresched.errors import InputError
from coresched_engine.fleet.engine_process import SteppedEngine, serve_engine
from coresched_engine.fleet.wire import (
    Boot,
    Channel,
    Failed,
    Forked,
    Parse,
    Parsed,
    Ready,
    Reap,
    Reaped,
    Refused,
)


def serve_template(
    fd: int,
    load: Callable[[Parse], tuple[dict[str, Any], Parsed]],
    make_engine: Callable[[dict[str, Any]], tuple[SteppedEngine, Ready]],
) -> int:
    """Do what the messages on the socket ``fd`` say, until it closes; the process's exit code.

    ``load`` imports the engine and reads its flags, as fields of its arguments. ``make_engine`` boots one
    from such fields, in a process of its own. Both raise InputError for what the user gave and cannot be
    used.
    """
    # The process that started this one ends it, and its engines with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=fd))
    given: dict[str, Any] = {}
    while True:
        message, engine_fd = channel.receive_with_fd()
        if message is None:
            return 0
        if isinstance(message, Parse):
            try:
                given, parsed = load(message)
            except InputError as error:
                channel.send(Refused(str(error)))
            except Exception as error:
                traceback.print_exc()
                channel.send(Failed(f"{type(error).__name__}: {error}"))
            else:
                channel.send(parsed)
        elif isinstance(message, Boot):
            assert engine_fd is not None
            if (pid := os.fork()) == 0:
                channel.close()
                _serve(engine_fd, Boot({**given, **message.arguments}, message.environment), make_engine)
            os.close(engine_fd)
            channel.send(Forked(pid))
        elif isinstance(message, Reap):
            _, status = os.waitpid(message.pid, 0)
            channel.send(Reaped(os.waitstatus_to_exitcode(status)))


def _serve(fd: int, boot: Boot, make_engine: Callable[[dict[str, Any]], tuple[SteppedEngine, Ready]]) -> None:
    """The engine's process."""
    code = 1
    try:
        code = serve_engine(Channel(socket.socket(fileno=fd)), boot, make_engine)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not by way of the handlers that the engine and torch registered in the template.
        os._exit(code)
