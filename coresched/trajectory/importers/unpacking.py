"""Bytes out of compressed files and zip archives, never more than a document may have."""

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import IO

import zstandard

from coresched.trajectory.importers.recording import Malformed

MAX_DOCUMENT_BYTES = 512 << 20
"""Of a JSON document or a member of an archive, unpacked: it is held whole, and a bomb has no end."""

_ZSTANDARD = 93  # the method's number in a zip archive; Python's zipfile knows it from 3.14 on
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    zstandard.ZstdError,
    NotImplementedError,  # packed in another way
    RuntimeError,  # encrypted
    ValueError,
    EOFError,
    OSError,
    struct.error,
)


def read_up_to(stream: IO[bytes], at_most: int, pieces: BytesIO | None = None) -> bytes:
    """`pieces` with what follows in the stream, up to `at_most` bytes in all.

    In small bites, so that what comes before the damage of a compressed stream is there when it raises.
    """
    pieces = BytesIO() if pieces is None else pieces
    while pieces.tell() < at_most and (piece := stream.read(min(at_most - pieces.tell(), 1 << 16))):
        pieces.write(piece)
    return pieces.getvalue()


@contextmanager
def opened_archive(path: str) -> Iterator["Archive"]:
    """The members of a zip archive. Raises Malformed if it is damaged."""
    try:
        archive = zipfile.ZipFile(path)
    except _DAMAGED as error:
        raise Malformed(f"damaged zip archive ({error}); it may have been cut off") from None
    with archive, open(path, "rb") as file:
        yield Archive(archive, file)


class Archive:
    """The members of an open zip archive, each read whole."""

    def __init__(self, archive: zipfile.ZipFile, file: IO[bytes]) -> None:
        self._archive = archive
        self._file = file

    def names(self) -> list[str]:
        return self._archive.namelist()

    def read(self, name: str) -> bytes:
        """The unpacked bytes. Raises Malformed if they are damaged, too many, or packed in an unknown way."""
        entry = self._archive.getinfo(name)
        try:
            content = self._zstandard(entry) if entry.compress_type == _ZSTANDARD else self._other(entry)
        except _DAMAGED as error:
            raise Malformed(f"cannot be unpacked ({error})") from None
        if len(content) > MAX_DOCUMENT_BYTES:
            raise Malformed(f"unpacks to more than {MAX_DOCUMENT_BYTES >> 20} MiB")
        return content

    def _other(self, entry: zipfile.ZipInfo) -> bytes:
        with self._archive.open(entry) as stream:
            return read_up_to(stream, MAX_DOCUMENT_BYTES + 1)

    def _zstandard(self, entry: zipfile.ZipInfo) -> bytes:
        self._file.seek(entry.header_offset)
        header = struct.unpack("<4s5H3I2H", self._file.read(30))
        if header[0] != b"PK\x03\x04":
            raise ValueError("no member where the directory says")
        self._file.seek(header[9] + header[10], os.SEEK_CUR)
        packed = self._file.read(min(entry.compress_size, MAX_DOCUMENT_BYTES))
        with zstandard.ZstdDecompressor().stream_reader(packed) as stream:
            content = read_up_to(stream, MAX_DOCUMENT_BYTES + 1)
        if len(content) <= MAX_DOCUMENT_BYTES and zlib.crc32(content) != entry.CRC:
            raise ValueError("its checksum is wrong")
        return content
