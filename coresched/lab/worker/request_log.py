"""One JSON line for each request: who asked for what, and what the cache spared."""

import errno
import logging
import os
from pathlib import Path
from typing import Literal

import msgspec

from coresched.errors import InputError
from coresched.lab.worker.asked import Asked

_logger = logging.getLogger(__name__)

Outcome = Literal["answered", "aborted", "refused"]


class RequestLog:
    """Appends to a file, a line at the end of each request, before the end of its answer is sent.

    What cannot be written (a full disk) is missing, and said once; the requests are answered all the same.
    """

    def __init__(self, path: Path) -> None:
        """Raises InputError if the file cannot be written."""
        try:
            # Unbuffered, as each line is one write.
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise InputError(f"--request-log {str(path)!r} cannot be written: {error.strerror}") from None
        self._path = path
        self._missing = self._cut_off = False

    def write(
        self, path: str, label: str | None, arrived: float, outcome: Outcome, asked: Asked | None = None
    ) -> None:
        """``arrived`` is wall-clock time in seconds since 1970; a request that was refused has no tokens.

        Of an aborted one ``output_tokens`` are those until its client had left.
        """
        entry: dict[str, object] = {"time": arrived, "path": path, "label": label, "outcome": outcome}
        if asked is not None:
            request = asked.request
            entry |= {
                "streamed": asked.stream,
                "script_line": None if asked.scripted is None else asked.scripted.line,
                "prompt_tokens": len(request.prompt),
                "cached_tokens": request.cached_tokens,
                "output_tokens": request.produced,
            }
        line = (b"\n" if self._cut_off else b"") + msgspec.json.encode(entry) + b"\n"
        try:
            written = self._file.write(line)
            if written < len(line):  # the disk is full from there on
                self._cut_off = True
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._cut_off = False
        except OSError as error:
            if not self._missing:
                self._missing = True
                _logger.warning(
                    "coresched worker: --request-log %r lacks requests from now on: %s",
                    str(self._path),
                    error.strerror,
                )
