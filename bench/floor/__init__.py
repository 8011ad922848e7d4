"""What the scheduling decisions take at the least, in compiled code: floor.cpp, compiled on the spot.

The core is compiled by a C++ compiler too, so where it was built there is one. Where there is none, the floor
is left out, and the report says so.
"""

import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.timing import Subject

SOURCE = Path(__file__).with_name("floor.cpp")
HEADERS = Path(__file__).parents[2] / "coresched" / "core"
OPTIONS = ("-O2", "-std=c++17", "-shared", "-fPIC")


class _Search(ctypes.Structure):
    _fields_ = (
        ("labels", ctypes.POINTER(ctypes.c_char_p)),
        ("sizes", ctypes.POINTER(ctypes.c_size_t)),
        ("count", ctypes.c_size_t),
        ("positions", ctypes.POINTER(ctypes.c_uint64)),
        ("points", ctypes.c_size_t),
        ("next", ctypes.c_size_t),
        ("found", ctypes.c_uint64),
    )


class _PrefixKey(ctypes.Structure):
    _fields_ = (("rank", ctypes.c_int64), ("queued_at", ctypes.c_double), ("item", ctypes.c_int64))


class _ChainKey(ctypes.Structure):
    _fields_ = (
        ("band", ctypes.c_double),
        ("negated_turns", ctypes.c_int64),
        ("bucket", ctypes.c_double),
        ("sequence", ctypes.c_int64),
    )


class _Stage(ctypes.Structure):
    _fields_ = (("turns", ctypes.c_int64), ("mean_s", ctypes.c_double))


class Rank(NamedTuple):
    """What a waiting request is sorted by: -hit where its label is in the label set, else 1; its entry."""

    rank: int
    queued_at: float


def compiler() -> str | None:
    """The C++ compiler of this machine, if it has one."""
    return which("c++") or which("g++") or which("clang++")


@cache
def library() -> "ctypes.PyDLL | None":
    """floor.cpp, compiled and loaded; None without a compiler.

    Its functions run for milliseconds and need no other thread, so they are called without letting go of the
    interpreter's lock. Raises RuntimeError if it does not compile.
    """
    found = compiler()
    if found is None:
        return None
    with TemporaryDirectory() as folder:
        path = Path(folder, "floor.so")
        command = [found, *OPTIONS, f"-I{HEADERS}", str(SOURCE), "-o", str(path)]
        paths = {"PATH": os.defpath, **os.environ}  # where compilers look for their assembler
        done = subprocess.run(command, env=paths, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{SOURCE.name} must compile with {found}, and does not: {done.stderr[-400:]}")
        loaded = ctypes.PyDLL(str(path))
    loaded.floor_search.argtypes = (ctypes.POINTER(_Search), ctypes.c_size_t)
    loaded.floor_search.restype = None
    loaded.floor_sort.argtypes = (ctypes.POINTER(_PrefixKey), ctypes.c_size_t, ctypes.c_size_t)
    loaded.floor_sort.restype = ctypes.c_int64
    heap = (ctypes.POINTER(_ChainKey), ctypes.c_size_t, ctypes.POINTER(_Stage), ctypes.c_size_t)
    entered = ctypes.POINTER(ctypes.c_int64)
    loaded.floor_fill.argtypes, loaded.floor_fill.restype = (*heap, entered), None
    loaded.floor_sift.argtypes, loaded.floor_sift.restype = (*heap, entered, ctypes.c_size_t), None
    return loaded


def hash_and_search(labels: Sequence[str], positions: Sequence[int]) -> dict[str, Subject]:
    """One hash of a label and one binary search among the points of the ring, as a peer of a case."""
    found = library()
    if found is None:
        return {}
    search = found.floor_search
    encoded = [label.encode() for label in labels]
    state = _Search(
        (ctypes.c_char_p * len(encoded))(*encoded),
        (ctypes.c_size_t * len(encoded))(*map(len, encoded)),
        len(encoded),
        (ctypes.c_uint64 * len(positions))(*sorted(positions)),
        len(positions),
    )
    return {"floor: hash+search": lambda operations: search(state, operations)}


def one_sort(ranks: Sequence[Rank]) -> dict[str, Subject]:
    """One comparison sort of as many keys, from the order in which the requests came."""
    found = library()
    if found is None:
        return {}
    sort = found.floor_sort
    keys = (_PrefixKey * len(ranks))(*(_PrefixKey(*rank, place) for place, rank in enumerate(ranks)))
    return {"floor: sort": lambda operations: sort(keys, len(ranks), operations)}


def one_sift(waiting: int, stages: Iterator[tuple[int, float]]) -> dict[str, Subject]:
    """One sift down and one up in a heap of as many keys."""
    found = library()
    if found is None:
        return {}
    sift = found.floor_sift
    drawn = [*islice(stages, 1009)]
    table = (_Stage * len(drawn))(*(_Stage(*stage) for stage in drawn))
    entered = ctypes.c_int64(0)
    heap = (_ChainKey * waiting)()
    found.floor_fill(heap, waiting, table, len(drawn), ctypes.byref(entered))
    return {
        "floor: sift": lambda operations: sift(
            heap, waiting, table, len(drawn), ctypes.byref(entered), operations
        )
    }
