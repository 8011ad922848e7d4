"""The processes of a fleet as the one that started them sees them."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final, TypeVar

from coresched.capacity.fields import one_line
from coresched.errors import InputError
from coresched_simdevice.fleet.wire import (
    AnyMessage,
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

LAST_LINES: Final = 5
LAST_BYTES: Final = 20_000

Answer = TypeVar("Answer")


class ProcessEndedError(RuntimeError):
    """A process of the fleet ended, or could not go on; ``said`` are the last lines of the fleet's log."""

    def __init__(self, message: str, said: Sequence[str]) -> None:
        super().__init__(message)
        self.said = said


class Template:
    """The process that has SGLang loaded, and from which engines are forked. Made by `template`."""

    def __init__(self, process: "subprocess.Popen[bytes]", channel: Channel, log: BinaryIO) -> None:
        self._process = process
        self._channel = channel
        self._log = log

    def parse(self, flags: Sequence[str], model_path: str) -> Parsed:
        """Load SGLang and let it read its flags. Raises InputError for those that cannot be used."""
        return self._ask(Parse(list(flags), model_path), Parsed)

    def boot(self, name: str, server_args: Mapping[str, object], environment: Mapping[str, str]) -> "Engine":
        """Fork an engine; it boots while others do. ``name`` is what errors call it."""
        ours, theirs = socket.socketpair()
        with theirs:
            forked = self._ask(Boot(dict(server_args), dict(environment)), Forked, theirs.fileno())
        return Engine(name, forked.pid, Channel(ours), self)

    def reap(self, pid: int) -> int:
        """Wait until an engine has ended; its exit code, or the negative number of a signal."""
        return self._ask(Reap(pid), Reaped).code

    def error(self, message: str) -> ProcessEndedError:
        """With the end of the log."""
        # Without seeking: those who write to it share the position.
        log = self._log.fileno()
        text = os.pread(log, LAST_BYTES, max(0, os.fstat(log).st_size - LAST_BYTES))
        lines = text.decode(errors="replace").splitlines()
        return ProcessEndedError(message, [one_line(line) for line in lines if line.strip()][-LAST_LINES:])

    def _ask(self, message: AnyMessage, kind: type[Answer], fd: int | None = None) -> Answer:
        self._channel.send(message, fd)
        answer = self._channel.receive()
        if isinstance(answer, kind):
            return answer
        if isinstance(answer, Refused):
            raise InputError(answer.reason)
        if isinstance(answer, Failed):
            raise self.error(f"SGLang could not be loaded: {answer.reason}")
        assert answer is None, f"{type(answer).__name__} is no answer to {type(message).__name__}"
        raise self.error(f"the process that loads SGLang {ended(self._process.wait())}")


class Engine:
    """One engine's process."""

    def __init__(self, name: str, pid: int, channel: Channel, template: Template) -> None:
        self.name = name
        self.pid = pid
        self._channel = channel
        self._template = template
        self._code: int | None = None

    def send(self, message: AnyMessage) -> None:
        self._channel.send(message)

    def receive(self, kind: type[Answer]) -> Answer:
        """The answer to what was sent.

        Raises InputError where SGLang refuses what the user gave, and ProcessEndedError, naming the engine,
        where the process has ended or failed.
        """
        answer = self._channel.receive()
        if isinstance(answer, kind):
            return answer
        if isinstance(answer, Refused):
            raise InputError(answer.reason)
        if isinstance(answer, Failed):
            raise self.error(f"failed: {answer.reason}")
        raise self.error(ended(self._reaped()))

    def error(self, what: str) -> ProcessEndedError:
        """That the engine ``what``, with the end of the log."""
        return self._template.error(f"{self.name} {what}")

    def kill(self) -> None:
        """End it, whatever it does."""
        self._channel.close()
        if self._code is None:  # its id is its own until it is reaped
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """The same, and wait until it has ended."""
        self.kill()
        self._reaped()

    def _reaped(self) -> int:
        if self._code is None:
            self._code = self._template.reap(self.pid)
        return self._code


@contextmanager
def template(environ: Mapping[str, str]) -> Iterator[Template]:
    """The template, with all variables of its environment; it ends with the context, and all engines with it.

    What SGLang prints goes to a log of which errors quote the end.
    """
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryFile() as log, ours, theirs:
        # A session of its own, so that Ctrl-C reaches this process only, and all of them can be ended.
        process = subprocess.Popen(
            [sys.executable, "-m", "coresched_simdevice.fleet", str(theirs.fileno())],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
        theirs.close()
        try:
            yield Template(process, Channel(ours), log)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def ended(code: int) -> str:
    """An exit code in words."""
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
