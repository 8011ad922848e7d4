"""What mini-swe-agent's runners know of a task and hand neither to the environment nor to the model.

It is read from their frames, which are up the stack: there is no other way to it from an import path.
"""

from __future__ import annotations

import concurrent.futures.thread
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

_RUNNERS = "minisweagent.run."


@dataclass(frozen=True)
class Task:
    """`instance_id` is None outside of a runner. `ends` is whether the runner will tell when it has ended."""

    instance_id: str | None = None
    instance: dict[str, Any] | None = None
    """The data set's row, where the runner chooses the image by it."""
    ends: bool = False


def task_of_runner() -> Task:
    """The task on which this thread works."""
    instance: dict[str, Any] | None = None
    chooses_image = ends = False
    for frame in _frames(_RUNNERS):
        found = frame.f_locals.get("instance")
        if instance is None and isinstance(found, dict) and isinstance(found.get("instance_id"), str):
            instance = found
            chooses_image = frame.f_code.co_name == "get_sb_environment"
        ends = ends or "progress_manager" in frame.f_locals
    if instance is None:
        return Task()
    return Task(instance["instance_id"], instance if chooses_image else None, ends)


def outputs_of_runner() -> Path | None:
    """The folder of its results."""
    for frame in _frames(_RUNNERS):
        found = frame.f_locals.get("output_dir")
        if isinstance(found, Path):
            return found
    return None


def threads_of_pool() -> int | None:
    """How many threads the pool has to which this thread belongs; None in no pool."""
    for frame in _frames(concurrent.futures.thread.__name__):
        pool = frame.f_locals.get("executor_reference")
        threads = getattr(pool() if callable(pool) else None, "_max_workers", None)
        if isinstance(threads, int):
            return threads
    return None


def _frames(modules: str) -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(modules):
            yield frame
        frame = frame.f_back
