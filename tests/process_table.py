"""Other processes as Linux shows them in /proc."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def descendants(pid: int) -> set[int]:
    """The processes below a process; none where it has ended."""
    with suppress(OSError):
        children = [
            int(child)
            for thread in Path(f"/proc/{pid}/task").iterdir()
            for child in (thread / "children").read_text().split()
        ]
        return set(children).union(*map(descendants, children))
    return set()


def gone(pid: int) -> bool:
    """Whether a process has ended, if only its parent does not know it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
