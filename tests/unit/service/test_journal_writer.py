"""Facts on their way to the file: what committed() promises, groups, failures, closing."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from coresched.service.batches.facts import TurnFinished, WorkerRemoved
from coresched.service.batches.log import JournalError
from coresched.service.journal import Journal
from coresched.service.journal.store import Forgotten, Row, Store

CHECKOUT = Path(__file__).parents[3]


def fact(n: int, key: int = 1) -> TurnFinished:
    return TurnFinished(at=float(n), request_id=f"id {n}", key=key, sample="s", failed=False)


def in_file(path: Path) -> list[int]:
    """Sequence numbers as another process sees them once the file is closed."""
    journal = Journal(str(path))
    found = [sequence for sequence, _ in journal.facts()]
    journal.leave()
    return found


def no_failure(why: str) -> None:
    raise AssertionError(why)


class Gate:
    """Holds the writing thread at its next write, and knows the groups that were written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.groups: list[list[Row | Forgotten]] = []
        self.reached = threading.Event()
        self.opened = threading.Event()
        write = Store.write

        def gated(store: Store, work: Sequence[Row | Forgotten]) -> None:
            self.reached.set()
            assert self.opened.wait(20)
            self.groups.append(list(work))
            write(store, work)

        monkeypatch.setattr(Store, "write", gated)


async def test_committed_waits_for_the_write_and_what_gathers_meanwhile_is_one_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    journal = Journal(str(tmp_path / "j"))
    journal.start(no_failure)
    first = journal.append(fact(0))
    waits = [asyncio.create_task(journal.committed(first))]
    assert await asyncio.to_thread(gate.reached.wait, 20)
    waits += [asyncio.create_task(journal.committed(journal.append(fact(n)))) for n in range(1, 101)]
    waits.append(asyncio.create_task(journal.committed(50)))  # out of order, and a second one for the same
    await asyncio.sleep(0)
    assert not any(wait.done() for wait in waits)
    waits[30].cancel()
    gate.opened.set()
    await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), 20)
    assert [wait.cancelled() for wait in waits] == [n == 30 for n in range(102)]
    assert [len(group) for group in gate.groups] == [1, 100]
    await asyncio.wait_for(journal.committed(1), 20)
    await journal.close()
    assert os.listdir(tmp_path) == ["j"]
    assert in_file(tmp_path / "j") == list(range(1, 102))


async def test_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    for restart in range(3):
        journal = Journal(str(tmp_path / "j"))
        assert [found for _, found in journal.facts()] == [fact(n) for n in range(2 * restart)]
        journal.start(no_failure)
        for n in range(2):
            assert journal.append(fact(2 * restart + n)) == 2 * restart + n + 1
        await journal.close()  # writes what no one waits for


async def test_forgetting_keeps_its_place_among_appends(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "j"))
    journal.start(no_failure)
    for n in range(10):
        journal.append(fact(n, key=n % 2))
    journal.forget({1})
    journal.append(fact(10, key=1))
    journal.append(WorkerRemoved(at=11.0, worker="w"))
    journal.forget([])
    await journal.close()
    assert in_file(tmp_path / "j") == [1, 3, 5, 7, 9, 11, 12]


async def test_a_failing_write_is_told_to_all_and_nothing_after_it_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(str(tmp_path / "j"))
    told: list[str] = []
    journal.start(told.append)
    await journal.committed(journal.append(fact(0)))
    gate = Gate(monkeypatch)
    waits = [asyncio.create_task(journal.committed(journal.append(fact(1))))]
    assert await asyncio.to_thread(gate.reached.wait, 20)
    # SQLite's own limit gives the error of a full disk.
    journal._store._connection.execute("PRAGMA max_page_count = 1")
    big = journal.append(TurnFinished(at=2.0, key=1, sample="x" * 50_000, failed=False))
    waits += [asyncio.create_task(journal.committed(sequence)) for sequence in (big, big - 1)]
    await asyncio.sleep(0)
    gate.opened.set()
    results = await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), 20)
    assert [type(result) for result in results] == [type(None), JournalError, type(None)]
    assert told == [f"{str(tmp_path / 'j')!r} cannot be written: database or disk is full"]
    assert str(results[1]) == told[0]
    journal._store._connection.execute("PRAGMA max_page_count = 1000000")
    later = journal.append(fact(3))
    with pytest.raises(JournalError, match="disk is full"):
        await journal.committed(later)
    await journal.committed(2)
    await journal.close()
    assert len(told) == 1
    assert in_file(tmp_path / "j") == [1, 2]


async def test_nothing_is_durable_after_closing(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "j"))
    journal.start(no_failure)
    sequence = journal.append(fact(0))
    await journal.close()
    await journal.committed(sequence)
    with pytest.raises(JournalError, match="closed"):
        await journal.committed(journal.append(fact(1)))


PROGRAM = """
import asyncio, os, sys
from coresched.service.batches.facts import TurnFinished
from coresched.service.batches.log import JournalError
from coresched.service.journal import Journal

async def main():
    journal = Journal(sys.argv[1])
    list(journal.facts())
    journal.start(lambda why: print(why, flush=True))
    async def call():
        for _ in range(2000):
            fact = TurnFinished(at=1.0, key=1, sample="s" * 3000, failed=False)
            sequence = journal.append(fact)
            await journal.committed(sequence)
            os.write(1, b"%d\\n" % sequence)
    try:
        await asyncio.gather(*(call() for _ in range(20)))
    except JournalError:
        await journal.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("lines", [1, 50, 3000])
def test_what_was_committed_survives_a_kill(tmp_path: Path, lines: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "j")], stdout=subprocess.PIPE, cwd=CHECKOUT
    )
    assert process.stdout is not None
    committed = [int(process.stdout.readline()) for _ in range(lines)]
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate()
    committed += [int(line) for line in rest.splitlines()[: rest.count(b"\n")]]
    found = in_file(tmp_path / "j")
    assert found == list(range(1, len(found) + 1))
    assert set(committed) <= set(found)


LITTLE_ROOM = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, 3_000_000))
"""


def test_a_disk_without_room_ends_in_one_sentence_and_keeps_what_was_committed(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LITTLE_ROOM + PROGRAM, str(tmp_path / "j")],
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    numbers = {int(line) for line in ended.stdout.splitlines() if line.isdigit()}
    told = [line for line in ended.stdout.splitlines() if not line.isdigit()]
    assert len(told) == 1
    assert told[0].startswith(f"{str(tmp_path / 'j')!r} cannot be written: ")
    assert len(numbers) > 100
    assert numbers <= set(in_file(tmp_path / "j"))


def test_sqlite_is_told_to_wait_for_the_disk(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "j"))
    store.begin()
    connection: sqlite3.Connection = store._connection
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_file_that_is_no_longer_at_its_path_is_a_failure(tmp_path: Path, replaced: bool) -> None:
    path = tmp_path / "j"
    journal = Journal(str(path))
    failures: list[str] = []
    journal.start(failures.append)
    await journal.committed(journal.append(fact(1)))
    path.rename(tmp_path / "elsewhere")
    if replaced:
        path.write_bytes(b"")
    with pytest.raises(JournalError, match="cannot be written"):
        await journal.committed(journal.append(fact(2)))
    assert len(failures) == 1
    await journal.close()
