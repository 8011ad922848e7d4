"""Reads trace files, one trajectory a line, without holding the file."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from coresched.errors import InputError
from coresched.trajectory.compression import DAMAGED, format_name, open_input
from coresched.trajectory.diagnosis import explain
from coresched.trajectory.refusal import shown
from coresched.trajectory.schema import Trajectory

MAX_LINE_BYTES = 64 << 20  # half a million turns; bounds the memory a file that is no trace file can take

_decode = msgspec.json.Decoder(Trajectory).decode


def read_trajectories(path: str | Path) -> Iterator[Trajectory]:
    """Yields the trajectories of a .jsonl, .jsonl.gz or .jsonl.zst file in the order of its lines.

    Holds one line at a time, and the ids seen. Blank lines are skipped, unknown keys ignored. Raises
    InputError, naming the file, the line, the field and the value, at the first line that is no trajectory;
    what came before it has been yielded by then.
    """
    path = os.fspath(path)
    line_of: dict[str, int] = {}
    for number, line in read_lines(path):
        try:
            trajectory = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"{path}, line {number}: {explain(line, error)}") from None
        first = line_of.setdefault(trajectory.id, number)
        if first != number:
            raise InputError(
                f"{path}, line {number}: id is {shown(trajectory.id)}, as on line {first}; "
                "an id must be unique within a file"
            )
        yield trajectory
    if not line_of:
        raise InputError(f"{path} holds no trajectories; every line must be one JSON object")


def read_files(paths: str | Path | Iterable[str | Path]) -> Iterator[Trajectory]:
    """Yields the trajectories of one or several files one after the other.

    A trajectory without a group shares its prefix within its own file only: of several files, such a
    trajectory gets the group "file 1", "file 2" and so on. Raises InputError as `read_trajectories` does.
    """
    for _, trajectory in _with_files(paths):
        yield trajectory


def load_trajectories(paths: str | Path | Iterable[str | Path]) -> list[Trajectory]:
    """All trajectories of one or several files, as one batch; groups as in `read_files`.

    Raises InputError as `read_trajectories` does, and for an id that two of the files use.
    """
    batch: list[Trajectory] = []
    file_of: dict[str, str] = {}
    for path, trajectory in _with_files(paths):
        if trajectory.id in file_of:
            raise InputError(
                f"{path}: id {shown(trajectory.id)} is in {file_of[trajectory.id]} too; "
                "in one batch every id must be unique, so rename one or load the files apart"
            )
        file_of[trajectory.id] = path
        batch.append(trajectory)
    return batch


def _with_files(paths: str | Path | Iterable[str | Path]) -> Iterator[tuple[str, Trajectory]]:
    names = [os.fspath(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    for number, name in enumerate(names, 1):
        for trajectory in read_trajectories(name):
            if len(names) > 1 and trajectory.group is None and trajectory.shared_prefix_tokens:
                trajectory = msgspec.structs.replace(trajectory, group=f"file {number}")
            yield name, trajectory


def read_lines(path: str) -> Iterator[tuple[int, bytes]]:
    """Line numbers, from 1, and the lines that are not blank.

    Raises InputError for a file that cannot be read, is damaged or has a line over MAX_LINE_BYTES.
    """
    number = 0
    with open_input(path) as stream:
        while True:
            try:
                line = stream.readline(MAX_LINE_BYTES + 1)
            except DAMAGED as error:
                raise InputError(
                    f"{path}: damaged {format_name(path)} data after line {number} ({error}); "
                    "copy or compress the file again"
                ) from None
            except OSError as error:
                raise InputError(
                    f"{path}: cannot be read after line {number}: {error.strerror or error}"
                ) from None
            if not line:
                return
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise InputError(
                    f"{path}, line {number}: longer than {MAX_LINE_BYTES >> 20} MiB; "
                    "every line must be one whole record"
                )
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")  # the byte order mark some editors write
            if line.strip():
                yield number, line
