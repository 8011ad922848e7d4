"""What SGLang's processes print: to a file or on to stderr, and the line of it that says why they ended."""

import re
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import IO, Final

from coresched.errors import InputError

LAST_LINES: Final = 20
KEPT_LINES: Final = 1000
"""Of a log without a file; SGLang prints several tracebacks behind the one with the reason."""

_REASON: Final = re.compile(r"(\w+(\.py|\.\w+)*: error: |coresched_\w+: |(\w+\.)*\w*(Error|Exception): )\S.*")
"""A line that ends a traceback, or with which a command refuses its flags."""

_OF_ANOTHER_PROCESS: Final = re.compile(r"EOFError|RuntimeError: (Initialization failed|Rank \d+ scheduler)")
"""What SGLang's first process says of a scheduler's end, whose reason stands above it."""


class ServerLog:
    """The log of one server: ``file``, or what is shown on stderr where it is None."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self._shown: deque[str] = deque(maxlen=KEPT_LINES)

    @contextmanager
    def opened(self) -> Iterator[IO[bytes] | None]:
        """What processes are to print to while the block runs; None: to a pipe that `show` reads.

        Raises InputError for a file that cannot be written.
        """
        if self.file is None:
            yield None
            return
        try:
            output = self.file.open("wb")
        except OSError as problem:
            raise InputError(f"--log {self.file}: cannot be written ({problem.strerror})") from None
        with output:
            yield output

    def show(self, pipe: IO[bytes]) -> Thread:
        """Pass on what comes through ``pipe`` to stderr, in a thread that ends with its last writer."""
        thread = Thread(target=self._pass_on, args=(pipe,), daemon=True)
        thread.start()
        return thread

    def _pass_on(self, pipe: IO[bytes]) -> None:
        for line in pipe:
            text = line.decode(errors="replace")
            self._shown.append(text.rstrip("\r\n"))
            try:
                sys.stderr.write(text)
                sys.stderr.flush()
            except (OSError, ValueError):  # nobody reads it any more; the server must not wait for that
                continue

    def last_lines(self) -> list[str]:
        """The end of the file; nothing where all was shown."""
        return [] if self.file is None else self._lines()[-LAST_LINES:]

    def reason(self) -> str | None:
        """The last line that looks like why the server ended; None where no line does."""
        found = [line for line in self._lines() if _REASON.fullmatch(line)]
        own = [line for line in found if not _OF_ANOTHER_PROCESS.match(line)]
        return next(reversed(own or found), None)

    def _lines(self) -> list[str]:
        if self.file is None:
            return list(self._shown)
        return self.file.read_text(errors="replace").splitlines()
