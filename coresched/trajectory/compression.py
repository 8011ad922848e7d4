"""Byte streams of trace files: plain, gzip (.gz) or Zstandard (.zst), told apart by the file name."""

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import zstandard

from coresched.errors import InputError

_READ_BYTES = 1 << 20
# One compressed block can expand ten-thousand-fold; small bites bound what is in memory at once.
_ZSTD_BITE_BYTES = 1 << 14

DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError)
"""What reading raises where the compressed data is cut off or is not of the announced format."""


class _ZstdInput(io.RawIOBase):
    """Decompresses frame by frame. Unlike zstandard's own reader it raises EOFError where one is cut off."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._compressed = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            self._compressed = self._compressed or self._file.read(_ZSTD_BITE_BYTES)
            if not self._compressed:
                if self._frame is not None:
                    raise EOFError("the last frame is cut off")
                return 0
            frame = self._frame or self._decompressor.decompressobj()
            self._ready = memoryview(frame.decompress(self._compressed))
            self._compressed = frame.unused_data
            self._frame = None if frame.eof else frame
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


def format_name(path: str) -> str:
    """The format a file name announces: "gzip", "Zstandard" or "plain"."""
    if path.endswith(".gz"):
        return "gzip"
    return "Zstandard" if path.endswith(".zst") else "plain"


@contextmanager
def open_input(path: str) -> Iterator[io.BufferedReader]:
    """The decompressed bytes of a file. Raises InputError if it cannot be opened; reading raises DAMAGED."""
    try:
        file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed below, and not before the last read
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a directory; give a .jsonl, .jsonl.gz or .jsonl.zst file") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise InputError(f"{path}: cannot be opened: {getattr(error, 'strerror', None) or error}") from None
    with file:
        match format_name(path):
            case "gzip":
                yield io.BufferedReader(gzip.GzipFile(fileobj=file, mode="rb"), _READ_BYTES)
            case "Zstandard":
                yield io.BufferedReader(_ZstdInput(file), _READ_BYTES)
            case _:
                yield io.BufferedReader(file, _READ_BYTES)


@contextmanager
def compressed_output(path: str, file: BinaryIO) -> Iterator[BinaryIO]:
    """A stream that writes into `file` in the format `path` names; on leaving, the format's end is written.

    The same input gives the same bytes: no time stamp and no file name goes into the header.
    """
    match format_name(path):
        case "gzip":
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as stream:
                yield stream  # type: ignore[misc]
        case "Zstandard":
            with zstandard.ZstdCompressor(level=10).stream_writer(file, closefd=False) as stream:
                yield stream
        case _:
            yield file
    file.flush()
    os.fsync(file.fileno())
