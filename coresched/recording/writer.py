"""Writing a recording: each recorder appends whole lines to a file of its own, from a thread of its own.

Who records never waits for the disk. What could not be written is told three times: by a warning when it
begins, by a line in the file once writing goes on, and by a RecordingError at the end.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import socket
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import msgspec

from coresched.errors import InputError
from coresched.recording.events import VERSION, BatchOptions, Header, Lost, RecordedEvent, SourceName

MOST_PENDING: Final = 100_000
"""Events that may wait for a disk that hangs; further ones are lost, which is told."""

CLOSE_S: Final = 30.0
"""Seconds that the end of a recording waits for the disk."""

_logger = logging.getLogger("coresched.recording")
_encode = msgspec.json.Encoder().encode


class RecordingError(RuntimeError):
    """A recording lacks events, because they could not be written. The run itself is whole."""


def recording_folder(folder: str | os.PathLike[str], field: str = "record") -> Path:
    """The folder, which is made if it is not there; recordings may be in it already.

    Raises TypeError, or InputError naming `field`, for what cannot hold a recording.
    """
    if not isinstance(folder, str | os.PathLike):
        raise TypeError(f"{field} must be the path of a folder, got {folder!r}")
    if not os.fspath(folder):
        raise InputError(f"{field} is empty; give the path of a folder")
    path = Path(folder)
    try:
        path.mkdir(exist_ok=True)
        of_a_replay = any((path / name).exists() for name in ("run.json", "comparison.json"))
        writable = os.access(path, os.W_OK | os.X_OK)
    except FileNotFoundError:
        raise InputError(
            f"{field} {str(path)!r}: there is no directory {str(path.parent)!r}; create it first"
        ) from None
    except FileExistsError:
        raise InputError(f"{field} {str(path)!r} is not a directory; choose another name") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{field} {str(path)[:80]!r} cannot be used: {why}") from None
    if of_a_replay:
        raise InputError(f"{field} {str(path)!r} is the folder of a replay; choose another")
    if not writable:
        raise InputError(f"{field} {str(path)!r} is not writable; choose another")
    return path


class Recorder:
    """One source's recording in a folder. For any threads; a forked child goes on in a file of its own.

    `events-SOURCE-HOST-PID-N.jsonl` begins with the first event. Raises what `recording_folder` does.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        source: SourceName,
        batch: BatchOptions | None = None,
        *,
        field: str = "record",
    ) -> None:
        self._folder = recording_folder(folder, field).absolute()
        self._source: SourceName = source
        self._batch = batch
        self._zero = time.monotonic()
        self._clock_zero_s = time.time()
        self._lock = threading.RLock()  # a garbage collection may record in the middle of it
        self._file: _EventFile | None = None
        self._closed = False
        _recorders.add(self)

    def now(self) -> float:
        """Seconds since the file's time zero."""
        return time.monotonic() - self._zero

    def write(self, event: RecordedEvent) -> None:
        """Append an event. It never waits; after `close` nothing happens."""
        file = self._file
        if file is None:
            with self._lock:
                if self._closed:
                    return
                if self._file is None:
                    self._file = _EventFile(self._folder, self._header(), self.now)
                file = self._file
        file.add(event)

    def close(self) -> None:
        """Wait until all is written. Raises RecordingError, once, if something was not."""
        with self._lock:
            self._closed = True
            file, self._file = self._file, None
        if file is not None:
            file.close()

    def _header(self) -> Header:
        return Header(
            recording=VERSION,
            source=self._source,
            id=uuid.uuid4().hex,
            host=socket.gethostname(),
            pid=os.getpid(),
            clock_zero_s=self._clock_zero_s,
            batch=self._batch,
        )

    def _forked(self) -> None:
        self._lock = threading.RLock()  # the old one may have been held
        self._file = None  # the parent's, whose thread is not here


class _EventFile:
    """One file, and the thread that appends to it."""

    def __init__(self, folder: Path, header: Header, now: Callable[[], float]) -> None:
        host = re.sub(r"[^A-Za-z0-9.]+", "-", header.host)[:64]
        self._name = f"events-{header.source}-{host}-{header.pid}"
        self._folder = folder
        self._now = now
        self._header = _encode(header) + b"\n"
        self._path: Path | None = None
        self._descriptor = -1
        self._length = 0
        self._torn = False
        self._losing = threading.RLock()  # a garbage collection may record in the middle of it
        self._lost = 0  # which the file does not tell yet
        self._lost_in_all = 0
        self._reason = ""
        self._pending: SimpleQueue[RecordedEvent | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="coresched recording", daemon=True)
        self._thread.start()

    def add(self, event: RecordedEvent) -> None:
        if self._pending.qsize() >= MOST_PENDING:
            self._lose(1, "the disk does not keep up")
        else:
            self._pending.put(event)

    def close(self) -> None:
        self._pending.put(None)
        self._thread.join(CLOSE_S)
        where = self._path or self._folder
        if self._thread.is_alive():
            raise RecordingError(
                f"the recording {str(where)!r} was not written to its end within {CLOSE_S:g} s; "
                "what was recorded last is missing"
            )
        if self._lost_in_all:
            what = "1 event" if self._lost_in_all == 1 else f"{self._lost_in_all:,} events"
            raise RecordingError(
                f"the recording {str(where)!r} lacks {what} that could not be written: {self._reason}"
            )

    def _run(self) -> None:
        while True:
            events = [self._pending.get()]
            while not self._pending.empty():
                events.append(self._pending.get())
            if lines := self._lines(events):
                self._append(lines)
            if None in events:
                if self._lost:
                    self._append([])  # which tells it, if the disk takes that
                if self._descriptor >= 0:
                    os.close(self._descriptor)
                return

    def _lines(self, events: Sequence[RecordedEvent | None]) -> list[bytes]:
        lines = []
        for event in events:
            if event is not None:
                try:
                    lines.append(_encode(event) + b"\n")
                except UnicodeEncodeError as error:  # half a surrogate pair, out of an error's message
                    self._lose(1, str(error))
        return lines

    def _append(self, lines: Sequence[bytes]) -> None:
        with self._losing:
            lost, self._lost = self._lost, 0
        marker = _encode(Lost(lost, self._now())) + b"\n" if lost else b""
        try:
            if self._descriptor < 0:
                self._open()
            head = self._header if self._length == 0 else b""
            self._write(head + marker + b"".join(lines))
        except OSError as error:
            self._lose(len(lines), error.strerror or str(error), told=lost)

    def _open(self) -> None:
        number = 0
        while True:
            path = self._folder / f"{self._name}-{number}.jsonl"
            try:
                self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
            except FileExistsError:
                number += 1
                continue
            self._path = path
            return

    def _write(self, data: bytes) -> None:
        """All of it or, so that the next line stands alone, none."""
        rest = memoryview(b"\n" + data if self._torn else data)
        total = len(rest)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            try:
                os.ftruncate(self._descriptor, self._length)
            except OSError:
                self._torn = True
            raise
        self._length += total
        self._torn = False

    def _lose(self, count: int, reason: str, told: int = 0) -> None:
        """Count lost events; `told` are counted already, and were to be told in the file."""
        with self._losing:
            first = not self._lost_in_all
            self._lost += count + told
            self._lost_in_all += count
            self._reason = reason
        if first:
            _logger.warning(
                "cannot write the recording %s: %s; the run goes on, and its recording will lack events",
                self._path or self._folder,
                reason,
            )


_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _forked() -> None:
    for recorder in list(_recorders):
        recorder._forked()


def _close_all() -> None:
    for recorder in list(_recorders):
        try:
            recorder.close()
        except RecordingError as error:
            _logger.error("%s", error)


os.register_at_fork(after_in_child=_forked)
atexit.register(_close_all)
