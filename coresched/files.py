"""Writing a file so that an interrupted run leaves the old one, or none, never half of the new one."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from coresched.errors import InputError


def require_writable(path: Path, field: str) -> None:
    """Refuse a path that could not be written later.

    Raises InputError naming ``field``, the path and the fix.
    """
    if path.is_dir():
        raise InputError(f"{field} {str(path)!r} is a directory; give a file name")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise InputError(f"{field} {str(path)!r}: there is no directory {str(folder)!r}; create it first")
    if not os.access(folder, os.W_OK):
        raise InputError(f"{field} {str(path)!r}: directory {str(folder)!r} is not writable; choose another")


@contextmanager
def replaced_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside ``path`` that takes its name when the block ends without an exception."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.absolute().parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
