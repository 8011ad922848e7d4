"""What a server tells its operator: a line an event on stderr, as text or JSON; it waits for no reader."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from queue import Full, Queue
from threading import Thread
from typing import Literal, TextIO

LEVELS = ("debug", "info", "warning", "error")
_LINES = 10_000
"""Most lines that wait for a slow reader of stderr; more are counted and lost."""
_LAST_LINES_S = 1.0
"""How long the end of the process waits for these."""


def event(logger: logging.Logger, level: int, name: str, message: str, **fields: object) -> None:
    """Log one event: its name and fields for JSON, the sentence for both."""
    logger.log(level, "%s", message, extra={"event": name, "fields": fields})


@contextmanager
def logging_to_stderr(program: str, form: Literal["text", "json"], level: str) -> Iterator[None]:
    """Send what this package logs from `level` (one of LEVELS) on, and warnings of any other, to stderr.

    A line of text is "program: sentence"; a line of JSON is an object with time (UTC), level, event, message
    and the fields of the event.
    """
    handler = _Lines(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text(program))
    root, ours = logging.getLogger(), logging.getLogger("coresched")
    before = ours.level
    ours.setLevel(level.upper())
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        ours.setLevel(before)
        handler.close()


class _Text(logging.Formatter):
    def __init__(self, program: str) -> None:
        super().__init__(f"{program}: %(message)s")


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, timezone.utc)
        line = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", record.name),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class _Lines(logging.Handler):
    """Writes lines in a thread: a stderr that nobody reads must not stop the server."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: Queue[str | None] = Queue(_LINES)
        self._lost = 0
        self._thread = Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
            if self._lost:
                self._lines.put_nowait(self.format(_lost(self._lost)))
                self._lost = 0
            self._lines.put_nowait(line)
        except Full:
            self._lost += 1
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        try:
            self._lines.put(None, timeout=_LAST_LINES_S)
        except Full:
            return
        self._thread.join(_LAST_LINES_S)
        super().close()

    def _write_all(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._stream.write(line + "\n")
                self._stream.flush()
            except (OSError, ValueError):  # nobody reads any more
                continue


def _lost(lines: int) -> logging.LogRecord:
    record = logging.LogRecord(
        "coresched.logs",
        logging.WARNING,
        __file__,
        0,
        f"{lines} lines were lost, as stderr was not read",
        None,
        None,
    )
    record.event = "lines_lost"
    return record
