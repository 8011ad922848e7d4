"""The processes of a fleet as the one that started them sees them."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final, TypeVar

from coresched.capacity.fields import one_line
from coresched.errors import InputError
from coresched_engine.fleet.wire import (
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


class Peer(ABC):
    """A process that is spoken with over ``channel``, and that errors call ``name``."""

    def __init__(self, name: str, channel: Channel) -> None:
        self.name = name
        self._channel = channel

    def send(self, message: AnyMessage, fd: int | None = None) -> None:
        self._channel.send(message, fd)

    def receive(self, kind: type[Answer]) -> Answer:
        """The answer to what was sent.

        Raises InputError where the engine refuses what the user gave, and ProcessEndedError, naming the
        process, where it has ended or failed.
        """
        answer = self._channel.receive()
        if isinstance(answer, kind):
            return answer
        if isinstance(answer, Refused):
            raise InputError(answer.reason)
        if isinstance(answer, Failed):
            raise self.error(f"failed: {answer.reason}")
        assert answer is None, f"{type(answer).__name__} is not the {kind.__name__} of {self.name}"
        raise self.error(ended(self._exit_code()))

    @abstractmethod
    def error(self, what: str) -> ProcessEndedError:
        """That the process ``what``, with the end of the fleet's log."""

    @abstractmethod
    def _exit_code(self) -> int:
        """Of the process, which has ended; the negative number of a signal that ended it."""


class Template(Peer):
    """The process that has ``engine`` loaded, and from which engines are forked. Made by `template`."""

    def __init__(
        self, engine: str, process: "subprocess.Popen[bytes]", channel: Channel, log: BinaryIO
    ) -> None:
        super().__init__(f"the process that loads {engine}", channel)
        self.engine = engine
        self._process = process
        self._log = log

    def parse(self, flags: Sequence[str], model_path: str, policies: Sequence[str]) -> Parsed:
        """Load the engine and let it read its flags.

        Raises InputError for those that cannot be used, and where it does not have one of ``policies``.
        """
        self.send(Parse(list(flags), model_path, list(policies)))
        return self.receive(Parsed)

    def boot(self, name: str, arguments: Mapping[str, object], environment: Mapping[str, str]) -> "Engine":
        """Fork an engine; it boots while others do. ``name`` is what errors call it."""
        ours, theirs = socket.socketpair()
        with theirs:
            self.send(Boot(dict(arguments), dict(environment)), theirs.fileno())
            forked = self.receive(Forked)
        return Engine(name, forked.pid, Channel(ours), self)

    def reap(self, pid: int) -> int:
        """Wait until an engine has ended; its exit code, or the negative number of a signal."""
        self.send(Reap(pid))
        return self.receive(Reaped).code

    def error(self, what: str) -> ProcessEndedError:
        return self.log_error(f"{self.name} {what}")

    def log_error(self, message: str) -> ProcessEndedError:
        """``message``, with the end of the log."""
        # Without seeking: those who write to it share the position.
        log = self._log.fileno()
        text = os.pread(log, LAST_BYTES, max(0, os.fstat(log).st_size - LAST_BYTES))
        lines = text.decode(errors="replace").splitlines()
        return ProcessEndedError(message, [one_line(line) for line in lines if line.strip()][-LAST_LINES:])

    def _exit_code(self) -> int:
        return self._process.wait()


class Engine(Peer):
    """One engine's process."""

    def __init__(self, name: str, pid: int, channel: Channel, template: Template) -> None:
        super().__init__(name, channel)
        self.pid = pid
        self._template = template
        self._code: int | None = None

    def error(self, what: str) -> ProcessEndedError:
        return self._template.log_error(f"{self.name} {what}")

    def kill(self) -> None:
        """End it, whatever it does."""
        self._channel.close()
        if self._code is None:  # its id is its own until it is reaped
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """The same, and wait until it has ended."""
        self.kill()
        self._exit_code()

    def _exit_code(self) -> int:
        if self._code is None:
            self._code = self._template.reap(self.pid)
        return self._code


@contextmanager
def template(engine: str, module: str, environ: Mapping[str, str]) -> Iterator[Template]:
    """The template, with all variables of its environment; it ends with the context, and all engines with it.

    ``module`` is run with a socket's number as its argument, and serves it with
    `coresched_engine.fleet.template.serve_template`. What ``engine``, as errors call it, prints goes to a log
    of which errors quote the end.
    """
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryFile() as log, ours, theirs:
        # A session of its own, so that Ctrl-C reaches this process only, and all of them can be ended.
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(theirs.fileno())],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
        theirs.close()
        try:
            yield Template(engine, process, Channel(ours), log)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def ended(code: int) -> str:
    """An exit code in words."""
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
