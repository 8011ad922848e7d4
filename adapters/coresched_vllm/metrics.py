"""The counters of a policy at vLLM's `/metrics`, which another process than the scheduler's serves.

vLLM sends its own statistics from its engines to its front end in a message that has no room for others. Ours
go through a small file of each engine, which the front end reads where it is scraped. With several front ends
vLLM keeps all metrics in files of Prometheus's client instead, and so ordinary counters are enough.
"""

from __future__ import annotations

import atexit
import functools
import json
import mmap
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol

from coresched_engine.counts import Counts, PrefixCounts
from coresched_engine.metrics import CounterSet, counter_families

FOLDER_VARIABLE = "CORESCHED_VLLM_METRICS"
"""Set by the front end for the engines that it starts: the folder of their files."""
_SEVERAL_FRONT_ENDS = "PROMETHEUS_MULTIPROC_DIR"

LABELS = ("model_name", "engine")
"""As on vLLM's own metrics."""

_NAMES = tuple(field.name for field in fields(PrefixCounts))
_NUMBERS = struct.Struct(f"<{len(_NAMES)}d")
_values = attrgetter(*_NAMES)  # dataclasses.astuple copies deeply, and this is called in each pass


class Publisher(Protocol):
    def publish(self, counts: Counts) -> None: ...


class SharedCounts:
    """The counts of one engine in ``folder``: numbers in a mapped file, and beside it their labels."""

    def __init__(self, folder: Path, labels: tuple[str, ...]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"{labels[-1]}-{os.getpid()}"
        path = folder / f"{stem}.counts"
        path.write_bytes(bytes(_NUMBERS.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _NUMBERS.size)
        # Last, for its presence says that the counts are there.
        (folder / f"{stem}.json").write_text(json.dumps(labels))

    def publish(self, counts: Counts) -> None:
        """Set the numbers to ``counts``, which are `PrefixCounts`."""
        _NUMBERS.pack_into(self._map, 0, *_values(counts))


def read_counts(folder: Path) -> Iterator[tuple[tuple[str, ...], PrefixCounts]]:
    """The labels and the counts of each engine that has a file in ``folder``."""
    for path in sorted(folder.glob("*.json")):
        labels = tuple(json.loads(path.read_text()))
        numbers = _NUMBERS.unpack(path.with_suffix(".counts").read_bytes())
        named = zip(_NAMES, numbers, strict=True)
        whole = [value if name == "seconds" else int(value) for name, value in named]
        yield labels, PrefixCounts(*whole)


class SharedCountsCollector:
    """For Prometheus: what the engines of this process have counted when it is scraped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterator[Any]:
        return counter_families(PrefixCounts, LABELS, read_counts(self._folder))


def serve_counts() -> None:
    """In a front end, before it starts engines: choose their folder, and collect from it."""
    if _SEVERAL_FRONT_ENDS not in os.environ:
        _collect_in(os.getpid())


@functools.cache  # once a process, whatever variables it was started with
def _collect_in(process: int) -> None:
    from prometheus_client import REGISTRY

    folder = tempfile.mkdtemp(prefix="coresched-vllm-")
    os.environ[FOLDER_VARIABLE] = folder
    atexit.register(_remove, folder, process)
    REGISTRY.register(SharedCountsCollector(Path(folder)))


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:  # and not in one that was forked from it
        shutil.rmtree(folder, ignore_errors=True)


def publisher_of(vllm_config: Any, counts: Counts) -> Publisher | None:
    """Where the scheduler of ``vllm_config`` publishes its counts; None if no front end on this machine."""
    labels = (
        str(vllm_config.model_config.served_model_name),
        str(vllm_config.parallel_config.data_parallel_index),
    )
    if _SEVERAL_FRONT_ENDS in os.environ:
        from prometheus_client import Counter

        return CounterSet(Counter, dict(zip(LABELS, labels, strict=True)), counts)
    if folder := os.environ.get(FOLDER_VARIABLE):
        return SharedCounts(Path(folder), labels)
    return None
