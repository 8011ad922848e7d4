"""Other processes as Linux shows them in /proc."""

from __future__ import annotations

import time
from collections.abc import Iterable
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


def wait_until_gone(pids: Iterable[int], timeout_s: float = 20) -> None:
    """What was killed ends a moment later. Fails for what is still there then."""
    until = time.monotonic() + timeout_s
    while left := [pid for pid in pids if not gone(pid)]:
        assert time.monotonic() < until, left
        time.sleep(0.05)


def gone(pid: int) -> bool:
    """Whether a process has ended, if only its parent does not know it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
