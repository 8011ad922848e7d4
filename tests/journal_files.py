"""Journal files for tests: whole, left by a killed process, and how they are refused."""

import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from coresched.errors import InputError
from coresched.service.batches.facts import TurnStarted, WorkerRegistered
from coresched.service.journal.store import Row, Store

CHECKOUT = Path(__file__).parents[1]

FACTS = [WorkerRegistered(at=1.0, worker="w0", weight=2.0)] + [
    TurnStarted(at=2.0 + n, key=n % 3, sample=f"söme {n}", worker="w0") for n in range(300)
]


def rows(start: int = 1) -> list[Row]:
    return [
        Row(n, getattr(fact, "key", None), msgspec.json.encode(fact)) for n, fact in enumerate(FACTS, start)
    ]


def written(path: Path) -> Path:
    store = Store(str(path))
    assert list(store.facts()) == []
    store.begin()
    store.write(rows())
    store.close()
    return path


def killed(path: Path) -> Path:
    """A journal as a process leaves it that is killed with facts in the -wal."""
    program = (
        "import os, signal, sys\n"
        "from coresched.service.journal.store import Row, Store\n"
        "store = Store(sys.argv[1])\n"
        "store.begin()\n"
        "for n in range(20):\n"
        """    store.write([Row(n + 1, None, b'{"type":"WorkerRemoved","at":1.0,"worker":"w%d"}' % n)])\n"""
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(path)], cwd=CHECKOUT)
    assert ended.returncode == -signal.SIGKILL
    assert path.with_name(path.name + "-wal").stat().st_size > 0
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """All files but SQLite's index into the -wal, which is made anew each time."""
    return {
        found.name: found.read_bytes()
        for found in folder.iterdir()
        if found.is_file() and not found.name.endswith("-shm")
    }


def refusal(path: Path | str) -> str:
    """The message with which the file is refused, when opened or when its facts are read."""
    with pytest.raises(InputError) as refused:
        list(Store(str(path)).facts())
    message = str(refused.value)
    assert "\n" not in message
    assert message.startswith(f"--journal {str(path)!r} ")
    return message


def in_another_process(path: Path) -> subprocess.CompletedProcess[str]:
    """Opens the journal there."""
    program = "import sys\nfrom coresched.service.journal.store import Store\nStore(sys.argv[1])"
    return subprocess.run(
        [sys.executable, "-c", program, str(path)], cwd=CHECKOUT, capture_output=True, text=True
    )
