"""One JSON line for each request: who asked for what, and what the cache spared."""

from pathlib import Path
from typing import Literal

import msgspec

from coresched.errors import InputError
from coresched.lab.worker.asked import Asked

Outcome = Literal["answered", "aborted", "refused"]


class RequestLog:
    """Appends to a file, a line at the end of each request, before the end of its answer is sent."""

    def __init__(self, path: Path) -> None:
        """Raises InputError if the file cannot be written."""
        try:
            # Unbuffered, as each line is one write.
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise InputError(f"--request-log {str(path)!r} cannot be written: {error.strerror}") from None

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
        self._file.write(msgspec.json.encode(entry) + b"\n")
