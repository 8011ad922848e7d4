"""Writing a file so that an interrupted run leaves the old one, or none, never half of the new one."""

import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from coresched.errors import InputError


def require_writable(path: Path, field: str, inputs: Sequence[Path] = ()) -> None:
    """Refuse a path that could not be written later, or that is one of the command's ``inputs``.

    Raises InputError naming ``field``, the path and the fix.
    """
    try:
        if any(os.path.realpath(other) == os.path.realpath(path) for other in inputs):
            raise InputError(f"{field} {str(path)!r} is an input of this command; choose another name")
        target = Path(os.path.realpath(path))
        if target.is_dir():
            raise InputError(f"{field} {str(path)!r} is a directory; give a file name")
        if target.exists() and not target.is_file():
            raise InputError(f"{field} {str(path)!r} is not a regular file; give the name of a file")
        folder = target.parent
        if not folder.is_dir():
            raise InputError(f"{field} {str(path)!r}: there is no directory {str(folder)!r}; create it first")
        if not os.access(folder, os.W_OK):
            raise InputError(f"{field} {str(path)!r}: {str(folder)!r} is not writable; choose another")
    except OSError as error:
        raise InputError(f"{field} {str(path)[:80]!r} cannot be written: {error.strerror}") from None


@contextmanager
def replaced_file(path: str | Path) -> Iterator[BinaryIO]:
    """A new file beside ``path`` that takes its name when the block ends without an exception.

    A link stays a link and what it points to is replaced; the mode of a file that exists is kept. Raises
    OSError as the file system does.
    """
    target = os.path.realpath(path)
    # Short whatever the target is called, so that it fits where the target fits.
    temporary = os.path.join(os.path.dirname(target), f".coresched-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
        if os.path.exists(target):
            os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(temporary, target)
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)


def write_whole(path: Path, text: str, field: str) -> None:
    """Write a text file, whole or not at all. Raises InputError naming ``field`` when it cannot be."""
    try:
        with replaced_file(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise InputError(f"{field} {str(path)!r} cannot be written: {error.strerror}") from None
