"""The engines that lie in the user's cache directory: who uses one, and which go."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Raises BlockingIOError where another process has the lock and this one shall not wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield


def lock_of(engine: Path) -> Path:
    return engine.with_name(f"{engine.name}.lock")


def use(engine: Path) -> None:
    """Keep other processes from removing the engine until this process ends."""
    fcntl.flock(os.open(engine, os.O_RDONLY), fcntl.LOCK_SH)


def remove_other_engines(engine: Path) -> None:
    """Remove the engines of other versions and lists than this one, and what cut short installations left.

    Not those that a process uses, or is about to, and nothing of engines of another name.
    """
    name = re.escape(engine.name.split("-")[0])
    for folder in engine.parent.iterdir():
        found = re.fullmatch(rf"({name}-[\w.]+-[0-9a-f]{{12}})(\.unfinished)?", folder.name)
        if found is None or found[1] == engine.name or not folder.is_dir():
            continue
        with suppress(BlockingIOError), locked(lock_of(folder.with_name(found[1])), wait=False):
            handle = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(handle)
