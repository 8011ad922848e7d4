"""Machine instructions an operation, counted by callgrind: the same on a busy machine as on a quiet one.

`python -m bench.instructions` is what runs under it. The subjects of each case do a number of operations and
then twice as many, each inside a C function that lets callgrind collect: the difference is theirs alone.
"""

import ctypes
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from bench.cases import TWIN, Case, Scale
from bench.cases.every import every_case
from bench.floor import compiler, library
from bench.results import OURS_COUNTED, PEER_COUNTED
from bench.timing import Subject
from coresched.errors import InputError

_OURS = "coresched"
_ROOT = Path(__file__).parents[1]

Counts = dict[tuple[str, str], float]
"""Instructions an operation by case and subject."""


def require_callgrind() -> None:
    """Raises InputError where instructions cannot be counted."""
    if which("valgrind") is None:
        raise InputError("--instructions callgrind not found; install valgrind")
    if compiler() is None:
        raise InputError("--instructions needs a C++ compiler for the function it counts in; none was found")


def instructions_an_operation() -> Counts:
    """Of every case but the twins, each at its size for counting. Takes minutes.

    Raises RuntimeError if the counting process fails.
    """
    with TemporaryDirectory() as folder:
        out = Path(folder, "callgrind.out")
        done = subprocess.run(
            [
                "valgrind",
                "--tool=callgrind",
                f"--callgrind-out-file={out}",
                "--collect-atstart=no",
                sys.executable,
                "-m",
                "bench.instructions",
            ],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"counting under callgrind failed: {' '.join(done.stderr.split())[-400:]}")
        dumps = (_total(Path(f"{out}.{number}")) for number in _from_one())
        counts: Counts = {}
        for line in done.stdout.splitlines():
            counted = json.loads(line)
            once, twice = next(dumps), next(dumps)
            counts[counted["case"], counted["subject"]] = (twice - once) / counted["operations"]
        return counts


def of_row(counts: Counts, case: Case, peer: str) -> dict[str, float]:
    """What `Row.counts` has of one row, whose case is of the size that was counted."""
    found = {OURS_COUNTED: counts.get((case.name, _OURS)), PEER_COUNTED: counts.get((case.name, peer))}
    return {name: count for name, count in found.items() if count is not None}


def _from_one() -> Iterator[int]:
    number = 0
    while True:
        yield (number := number + 1)


def _total(dump: Path) -> int:
    for line in dump.read_text(errors="replace").splitlines():
        if line.startswith(("summary:", "totals:")):
            return int(line.split()[1])
    raise RuntimeError(f"callgrind's dump {dump.name} must have a summary, and has none")


def _count(cases: Iterable[Case]) -> None:
    """Runs in the counted process: does the operations, and says in lines of JSON which they were."""
    loaded = library()
    assert loaded is not None
    callback = ctypes.PYFUNCTYPE(None)
    loaded.floor_counted.argtypes = (callback,)
    loaded.floor_counted.restype = ctypes.c_int

    def counted(action: Callable[[], object]) -> None:
        def run() -> None:
            action()

        if not loaded.floor_counted(callback(run)):
            raise RuntimeError("valgrind/callgrind.h was not found; install valgrind with its headers")

    for case in cases:
        for name, subject in ((_OURS, case.ours), *case.peers.items()):
            if name == TWIN:
                continue
            operations = _operations(subject)
            for times in (operations, 2 * operations):
                counted(lambda subject=subject, times=times: subject(times))  # type: ignore[misc]
            line = {"case": case.name, "subject": name, "operations": operations}
            sys.stdout.write(json.dumps(line) + "\n")


def _operations(subject: Subject) -> int:
    """Warms the subject up; as many as make chance of one operation small."""
    subject(8)
    return 64


if __name__ == "__main__":
    _count(every_case(Scale.COUNTED))
