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

from coresched_engine.counts import Counts
from coresched_engine.metrics import CounterSet, counter_families

from coresched_vllm.counts import COUNTS

FOLDER_VARIABLE = "CORESCHED_VLLM_METRICS"
"""Set by the front end for the engines that it starts: the folder of their files."""
_SEVERAL_FRONT_ENDS = "PROMETHEUS_MULTIPROC_DIR"

LABELS = ("model_name", "engine")
"""As on vLLM's own metrics."""


class Publisher(Protocol):
    def publish(self, counts: Counts) -> None: ...


class SharedCounts:
    """The counts of one engine in ``folder``: numbers in a mapped file, and beside it what they are.

    ``kind`` is their class, one of `COUNTS`.
    """

    def __init__(self, folder: Path, labels: tuple[str, ...], kind: type[Counts]) -> None:
        names = _names(kind)
        self._numbers = _numbers(names)
        self._values = attrgetter(*names)  # dataclasses.astuple copies deeply, and this is in each pass
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"{labels[-1]}-{os.getpid()}"
        path = folder / f"{stem}.counts"
        path.write_bytes(bytes(self._numbers.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), self._numbers.size)
        # Last, for its presence says that the counts are there.
        (folder / f"{stem}.json").write_text(json.dumps({"family": kind.FAMILY, "labels": labels}))

    def publish(self, counts: Counts) -> None:
        """Set the numbers to ``counts``."""
        self._numbers.pack_into(self._map, 0, *self._values(counts))


def read_counts(folder: Path) -> Iterator[tuple[tuple[str, ...], Counts]]:
    """The labels and the counts of each engine that has a file in ``folder``."""
    for path in sorted(folder.glob("*.json")):
        described = json.loads(path.read_text())
        kind = COUNTS[described["family"]]
        names = _names(kind)
        numbers = _numbers(names).unpack(path.with_suffix(".counts").read_bytes())
        named = zip(names, numbers, strict=True)
        yield tuple(described["labels"]), kind(*(v if name == "seconds" else int(v) for name, v in named))


def _names(kind: type[Counts]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _numbers(names: tuple[str, ...]) -> struct.Struct:
    return struct.Struct(f"<{len(names)}d")


class SharedCountsCollector:
    """For Prometheus: what the engines of this process have counted when it is scraped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterator[Any]:
        found = list(read_counts(self._folder))
        for kind in COUNTS.values():
            if own := [(labels, counts) for labels, counts in found if type(counts) is kind]:
                yield from counter_families(kind, LABELS, own)


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
        return SharedCounts(Path(folder), labels, type(counts))
    return None
