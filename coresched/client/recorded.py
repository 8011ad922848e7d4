"""The end of a recording, as the end of the block of what is recorded."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from coresched.recording.writer import RecordingError

_logger = logging.getLogger("coresched.recording")


class Record(Protocol):
    """What a batch, or a transport, records by."""

    @property
    def active(self) -> bool:
        """Whether anything is recorded."""

    def close(self) -> None:
        """Wait until all is written. Raises RecordingError if something is missing."""


def end_recording_here(record: Record, kind: type[BaseException] | None) -> None:
    """Wait until all is written. Raises RecordingError if something is missing and the block did not raise.

    Where it did, that error goes on, and what is missing is logged.
    """
    if not record.active:
        return
    try:
        record.close()
    except RecordingError as error:
        if kind is None:
            raise
        _logger.error("%s", error)


async def end_recording(record: Record, kind: type[BaseException] | None) -> None:
    """The same, while the event loop goes on."""
    if not record.active:
        return
    if kind is not None and issubclass(kind, GeneratorExit):  # in which nothing can be awaited
        end_recording_here(record, kind)
        return
    try:
        ending = asyncio.get_running_loop().run_in_executor(None, end_recording_here, record, kind)
    except RuntimeError:  # the process is at its end, where no thread may begin any more
        end_recording_here(record, kind)
    else:
        await ending
