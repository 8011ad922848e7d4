"""Writes trace files, whole or not at all."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from coresched.errors import InputError
from coresched.files import replaced_file
from coresched.trajectory.compression import compressed_output
from coresched.trajectory.diagnosis import explain
from coresched.trajectory.refusal import shown
from coresched.trajectory.schema import Trajectory


def write_trajectories(path: str | Path, trajectories: Iterable[Trajectory]) -> int:
    """Writes one trajectory a line, as .jsonl, .jsonl.gz or .jsonl.zst by the name, and returns their number.

    Writes to a temporary file in the same folder and renames it at the end: an interrupted run leaves what
    was there before. The same trajectories give the same bytes. Raises InputError for a place that cannot be
    written, an id used twice, no trajectories at all, or a field that could not be read back.
    """
    # A rename would replace a link, not what it points to.
    target = os.path.realpath(path)
    if os.path.isdir(target):
        raise InputError(f"{os.fspath(path)} is a directory; give the name of a file in it")
    if os.path.exists(target) and not os.path.isfile(target):
        raise InputError(f"{os.fspath(path)} is not a regular file; give the name of a .jsonl file")
    try:
        with replaced_file(target) as file, compressed_output(target, file) as stream:
            count = 0
            for line in _lines(trajectories):
                stream.write(line)
                count += 1
            if not count:
                raise InputError(f"{os.fspath(path)}: there are no trajectories to write; give at least one")
    except OSError as error:
        raise InputError(f"{os.fspath(path)}: cannot be written: {error.strerror or error}") from None
    return count


def _lines(trajectories: Iterable[Trajectory]) -> Iterator[bytes]:
    encode = msgspec.json.Encoder().encode
    decode = msgspec.json.Decoder(Trajectory).decode
    ids: set[str] = set()
    for number, trajectory in enumerate(trajectories, 1):
        where = f"trajectory {number} (id {shown(trajectory.id)})"
        try:
            line = encode(trajectory)
        except (TypeError, ValueError, RecursionError) as error:  # meta may hold anything
            raise InputError(f"{where} cannot be written as JSON: {error}") from None
        try:
            decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InputError(f"{where}: {explain(line, error)}") from None
        if trajectory.id in ids:
            raise InputError(f"{where}: an earlier trajectory has the same id; an id must be unique")
        ids.add(trajectory.id)
        yield line + b"\n"
