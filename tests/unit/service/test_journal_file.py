"""The journal's file: what is refused, in what words, and that a refusal changes nothing."""

import os
import random
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from journal_files import FACTS, contents, killed, refusal, rows, written

from coresched.errors import InputError
from coresched.service.batches.facts import BatchClosed
from coresched.service.journal.store import Forgotten, Row, Store


def edited(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def test_facts_come_back_in_order_and_one_file_of_ones_own_is_left(tmp_path: Path) -> None:
    path = written(tmp_path / "j")
    assert os.listdir(tmp_path) == ["j"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = contents(tmp_path)
    store = Store(str(path))
    assert list(store.facts()) == list(enumerate(FACTS, 1))
    assert store.last() == 301
    store.leave()
    assert contents(tmp_path) == before
    assert os.listdir(tmp_path) == ["j"]


def test_forgotten_batches_go_in_the_order_of_the_work(tmp_path: Path) -> None:
    store = Store(str(written(tmp_path / "j")))
    store.begin()
    again = Row(302, 1, b'{"type":"BatchClosed","at":999.0,"key":1}')
    store.write([Forgotten([1, 2]), again])
    store.close()
    store = Store(str(tmp_path / "j"))
    kept = [(n, fact) for n, fact in enumerate(FACTS, 1) if getattr(fact, "key", 0) == 0]
    assert list(store.facts()) == [*kept, (302, BatchClosed(at=999.0, key=1))]
    store.leave()


def test_a_write_is_whole_or_nothing(tmp_path: Path) -> None:
    store = Store(str(written(tmp_path / "j")))
    store.begin()
    with pytest.raises(sqlite3.Error):
        store.write([*rows(start=400), Forgotten([1]), Row(5, None, b"taken already")])
    store.close()
    store = Store(str(tmp_path / "j"))
    assert list(store.facts()) == list(enumerate(FACTS, 1))
    store.leave()


def test_what_a_killed_process_wrote_is_there_and_its_lock_is_not(tmp_path: Path) -> None:
    killed(tmp_path / "j")
    before = contents(tmp_path)
    store = Store(str(tmp_path / "j"))
    assert [sequence for sequence, _ in store.facts()] == list(range(1, 21))
    store.leave()
    assert contents(tmp_path) == before
    store = Store(str(tmp_path / "j"))
    assert len(list(store.facts())) == 20
    store.begin()
    store.write([Row(21, None, b'{"type":"WorkerRemoved","at":1.0,"worker":"x"}')])
    store.close()
    assert os.listdir(tmp_path) == ["j"]


def test_a_kill_while_the_wal_goes_into_the_file_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "j"
    store = Store(str(path))
    store.begin()
    store.write(rows())
    process = subprocess.run(["cp", path.with_name("j-wal"), tmp_path / "kept"])  # not here: see Store
    assert process.returncode == 0
    store.close()
    os.rename(tmp_path / "kept", path.with_name("j-wal"))
    os.truncate(path, 4096)  # the header says more pages than the file has
    store = Store(str(path))
    assert list(store.facts()) == list(enumerate(FACTS, 1))
    store.leave()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda path: path.write_bytes(b"time,event\n" * 500), "not a coresched journal"),
        (lambda path: path.write_bytes(b"short"), "not a coresched journal"),
        (lambda path: os.truncate(path, 12288), "damaged"),
        (lambda path: os.truncate(path, path.stat().st_size - 1), "damaged"),
        (
            lambda path: edited(path, "PRAGMA user_version = 7"),
            "was written by a newer coresched (journal version 7, this one knows 1); "
            "use that version or another file",
        ),
        (lambda path: edited(path, "PRAGMA user_version = 0"), "has the unknown journal version 0"),
        (lambda path: edited(path, "PRAGMA application_id = 9"), "database of another application"),
        (lambda path: edited(path, "DROP TABLE facts"), "damaged (no such table: facts)"),
        (lambda path: edited(path, "UPDATE facts SET batch = 9 WHERE sequence = 40"), "damaged: fact 40 "),
        (
            lambda path: edited(path, "UPDATE facts SET sequence = 777 WHERE sequence = 40"),
            "fact 777 differs",
        ),
        (
            lambda path: edited(path, "UPDATE facts SET fact = 'text' WHERE sequence = 40"),
            "damaged: fact 40 ",
        ),
    ],
)
@pytest.mark.parametrize("journal_mode", ["WAL", "DELETE"])
def test_what_is_no_whole_journal_is_refused_and_stays(
    tmp_path: Path, change: Callable[[Path], None], says: str, journal_mode: str
) -> None:
    path = written(tmp_path / "j")
    edited(path, f"PRAGMA journal_mode = {journal_mode}")
    change(path)
    before = contents(tmp_path)
    assert says in refusal(path)
    assert contents(tmp_path) == before


def test_a_fact_of_no_known_kind_in_the_middle_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "j")
    store = Store(str(path))
    store.begin()
    store.write([Row(500, 4, b'{"type":"SamplePaused","at":1.0}'), *rows(start=501)])
    store.close()
    before = contents(tmp_path)
    assert "has a fact 500 that cannot be decoded" in refusal(path)
    assert contents(tmp_path) == before


def test_a_newer_version_that_is_still_in_the_wal_is_refused_and_stays(tmp_path: Path) -> None:
    path = killed(tmp_path / "j")
    program = (
        "import os, signal, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1])\n"
        "connection.execute('PRAGMA user_version = 7')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path)])
    before = contents(tmp_path)
    assert "newer coresched (journal version 7" in refusal(path)
    assert contents(tmp_path) == before


def test_a_wal_without_its_database_is_refused_and_stays(tmp_path: Path) -> None:
    path = killed(tmp_path / "j")
    path.unlink()
    before = contents(tmp_path)
    assert "is missing or empty, but there is 'j-wal'" in refusal(path)
    assert contents(tmp_path) == before


def test_flipped_bytes_never_change_a_fact_unnoticed(tmp_path: Path) -> None:
    path = written(tmp_path / "j")
    whole = path.read_bytes()
    chance = random.Random(5)
    refused = 0
    # The first page with the header, and a sample of the others.
    for place in [*range(110), *(chance.randrange(len(whole)) for _ in range(300))]:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        try:
            store = Store(str(path))
            assert list(store.facts()) == list(enumerate(FACTS, 1))
            store.leave()
        except InputError:
            refused += 1
        assert contents(tmp_path) == {"j": bytes(flipped)}
    assert refused > 200
