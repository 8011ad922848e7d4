"""`python -m coresched_simdevice.fleet FD`: the template, from which the engines' processes are forked.

SGLang is imported once, here, which takes most of a boot. FD is a socket on which `wire` is spoken.
"""

import os
import signal
import socket
import sys
import traceback
from typing import Any

from coresched.errors import InputError
from coresched_simdevice.fleet.wire import (
    Boot,
    Channel,
    Failed,
    Forked,
    Parse,
    Parsed,
    Reap,
    Reaped,
    Refused,
)


def main() -> int:
    # The process that started this one ends it, and its engines with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    given: dict[str, Any] = {}
    while True:
        message, fd = channel.receive_with_fd()
        if message is None:
            return 0
        if isinstance(message, Parse):
            try:
                given, parsed = _load(message)
            except InputError as error:
                channel.send(Refused(str(error)))
            except Exception as error:
                traceback.print_exc()
                channel.send(Failed(f"{type(error).__name__}: {error}"))
            else:
                channel.send(parsed)
        elif isinstance(message, Boot):
            assert fd is not None
            if (pid := os.fork()) == 0:
                channel.close()
                _serve(fd, Boot({**given, **message.server_args}, message.environment))
            os.close(fd)
            channel.send(Forked(pid))
        elif isinstance(message, Reap):
            _, status = os.waitpid(message.pid, 0)
            channel.send(Reaped(os.waitstatus_to_exitcode(status)))


def _load(message: Parse) -> tuple[dict[str, Any], Parsed]:
    from coresched_simdevice.fleet.arguments import parse_flags
    from coresched_simdevice.virtual.boot import load_sglang

    load_sglang()
    found = parse_flags(message.flags, message.model_path)
    from sglang.srt.models.registry import import_model_classes

    # Every engine would do this, for half of what is left of its boot.
    import_model_classes("sglang.srt.models")
    return found


def _serve(fd: int, boot: Boot) -> None:
    """The engine's process."""
    from coresched_simdevice.fleet.engine_process import serve_engine

    code = 1
    try:
        code = serve_engine(Channel(socket.socket(fileno=fd)), boot)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not by way of the handlers that SGLang and torch registered in the template.
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
