"""The end of a batch's recording, as the end of the batch's block."""

from __future__ import annotations

import asyncio
import logging

from coresched.recording.harness import BatchRecord
from coresched.recording.writer import RecordingError

_logger = logging.getLogger("coresched.recording")


def end_recording_here(record: BatchRecord, kind: type[BaseException] | None) -> None:
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


async def end_recording(record: BatchRecord, kind: type[BaseException] | None) -> None:
    """The same, while the event loop goes on."""
    if not record.active:
        return
    if kind is not None and issubclass(kind, GeneratorExit):  # in which nothing can be awaited
        end_recording_here(record, kind)
    else:
        await asyncio.to_thread(end_recording_here, record, kind)
