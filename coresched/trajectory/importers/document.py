"""A file to import: told apart as one JSON document, JSON lines or a zip archive, and read within limits."""

import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any, TypeVar

import msgspec

from coresched.errors import InputError
from coresched.trajectory.compression import DAMAGED, format_name, open_input
from coresched.trajectory.importers.recording import Malformed, Skipped
from coresched.trajectory.importers.unpacking import MAX_DOCUMENT_BYTES, read_up_to
from coresched.trajectory.reader import read_lines

_COMPRESSED = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}
_HEAD_BYTES = 4 << 20
_MAX_DEPTH_TEXT = "the JSON is nested too deeply"

T = TypeVar("T")
S = TypeVar("S")
Head = dict[str, object]
"""A record's keys with their values; of an array or object only the type, `list` or `dict`."""


@dataclass
class Document:
    """One file. `kind` is "document", "lines" or "zip"; "folder" for that of a recording."""

    path: str
    kind: str
    content: bytes = b""
    """The whole file, of a document; of an archive the file stays where it is."""

    def heads(self, at_most: int = 20) -> Iterator[Head]:
        """Heads of the first records that can be read; a record that is an array has its first element's.

        Raises Malformed where it is one document, and broken.
        """
        if self.kind == "document":
            yield _head(self.content)
        elif self.kind == "lines":
            for number, (_, line) in enumerate(read_lines(self.path)):
                if number == at_most:
                    return
                try:
                    yield _head(line)
                except Malformed:
                    continue

    def records(self, kind: type[T]) -> Iterator[tuple[str, T | Skipped]]:
        """Each line, or the one document, decoded as `kind`, with its place in the file for messages.

        Where a file is damaged, the last record says so.
        """
        if self.kind == "folder":
            raise Malformed("this is the folder of a recording; of the formats only recording has those")
        if self.kind == "zip":
            raise Malformed("this is a zip archive; of the formats only inspect has those")
        if self.kind == "document":
            yield "", decoded(self.content, kind, "")
            return
        try:
            for number, line in read_lines(self.path):
                where = f"line {number}"
                yield where, decoded(line, kind, where)
        except InputError as error:
            yield "", Skipped("", str(error).removeprefix(self.path).lstrip(":, "))

    def each(self, kind: type[T], make: Callable[[str, T], S]) -> Iterator[S | Skipped]:
        """`make` of each record's place and value; one that it, or decoding, finds malformed is skipped."""
        for where, record in self.records(kind):
            if isinstance(record, Skipped):
                yield record
                continue
            try:
                yield make(where, record)
            except Malformed as error:
                yield Skipped(where, str(error))

    @property
    def stem(self) -> str:
        """The file's name without its extensions: what a file with one sample calls it."""
        name = os.path.basename(self.path)
        for extension in (".gz", ".zst", ".json", ".jsonl", ".traj"):
            name = name.removesuffix(extension)
        return name


def open_document(path: str) -> Document:
    """What kind of file it is, and a document's content.

    Raises Malformed for an empty or damaged file and one over the limit, InputError if it cannot be opened.
    """
    if os.path.isdir(path):
        return Document(path, "folder")
    pieces = BytesIO()
    with open_input(path) as stream:
        try:
            beginning = stream.read(4)
            if beginning == b"PK\x03\x04" and format_name(path) == "plain":
                return Document(path, "zip")
            for magic, extension in _COMPRESSED.items():
                if beginning.startswith(magic):
                    raise Malformed(f"this is compressed data; let the file name end in {extension}")
            pieces.write(beginning.removeprefix(b"\xef\xbb\xbf"))
            if not read_up_to(stream, _HEAD_BYTES, pieces).strip():
                raise Malformed("the file is empty")
            if _is_lines(path, pieces.getvalue()):
                return Document(path, "lines")
            content = read_up_to(stream, MAX_DOCUMENT_BYTES + 1, pieces)
        except DAMAGED as error:
            if _is_lines(path, pieces.getvalue()):
                return Document(path, "lines")  # of which those before the damage can be read
            raise Malformed(
                f"damaged {format_name(path)} data ({error}); copy or compress it again"
            ) from None
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(content) > MAX_DOCUMENT_BYTES:
        raise Malformed(
            f"longer than {MAX_DOCUMENT_BYTES >> 20} MiB unpacked, the most a JSON document may have"
        )
    return Document(path, "document", content)


def decoded(data: bytes, kind: type[T], where: str) -> T | Skipped:
    """JSON as `kind`, or why not, with the place of the first fault."""
    try:
        return decode(data, kind)
    except Malformed as error:
        return Skipped(where, str(error))


def decode(data: bytes, kind: type[T]) -> T:
    """JSON as `kind`; NaN and Infinity, which Python's writers leave in logs, are null. Raises Malformed."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise Malformed(_described(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return convert(_leniently(data), kind)


def convert(value: Any, kind: type[T]) -> T:
    """A decoded JSON value as `kind`. Raises Malformed."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise Malformed(_described(error)) from None
    except RecursionError:
        raise Malformed(_MAX_DEPTH_TEXT) from None


def _leniently(data: bytes) -> Any:
    try:
        text = data.decode().rstrip()
    except UnicodeDecodeError as bad:
        raise Malformed(f"byte 0x{data[bad.start]:02x} at {_place(data, bad.start)} is not UTF-8") from None
    try:
        value = json.loads(
            text,
            parse_constant=lambda _: None,
            parse_float=lambda number: float(number) if math.isfinite(float(number)) else None,
            parse_int=lambda digits: int(digits[:400]),
        )
        # JSON can spell half a surrogate pair, which is no character: it becomes a question mark.
        return msgspec.json.decode(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    except RecursionError:
        raise Malformed(_MAX_DEPTH_TEXT) from None
    except json.JSONDecodeError as bad:
        at = len(text[: bad.pos].encode())
        what = bad.msg[0].lower() + bad.msg[1:]
        raise Malformed(f"broken JSON at {_place(data, at)}: {what}") from None


def _place(data: bytes, offset: int) -> str:
    line = data.count(b"\n", 0, offset) + 1
    column = offset - data.rfind(b"\n", 0, offset)
    return f"line {line}, column {column}" if b"\n" in data.strip() else f"column {column}"


def _described(error: msgspec.ValidationError) -> str:
    what, _, path = str(error).partition(" - at `$")
    what = what[0].lower() + what[1:].replace("`", "")
    path = path.rstrip("`").lstrip(".")
    return f"{path}: {what}" if path else what


def _head(data: bytes) -> Head:
    try:
        return _summaries(msgspec.json.decode(data, type=dict[str, msgspec.Raw] | list[msgspec.Raw]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _summaries(_leniently(data))


def _summaries(value: Any) -> Head:
    if isinstance(value, list):
        value = value[0] if value else {}
        value = msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value
    if not isinstance(value, dict):
        return {}
    return {key: _summary(item) for key, item in value.items()}


def _summary(item: Any) -> object:
    if isinstance(item, msgspec.Raw):
        first = bytes(item).lstrip()[:1]
        if first in (b"{", b"["):
            return dict if first == b"{" else list
        item = msgspec.json.decode(item)
    return type(item) if isinstance(item, dict | list) else item


def _is_lines(path: str, beginning: bytes) -> bool:
    bare = path.removesuffix(".gz").removesuffix(".zst")
    if bare.endswith((".jsonl", ".ndjson")):
        return True
    lines = [line for line in beginning.split(b"\n", 64)[:64] if line.strip()][:2]
    if len(lines) < 2 or lines[0].strip() in (b"[", b"{"):
        return False
    return any(_is_object(line) for line in lines)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
