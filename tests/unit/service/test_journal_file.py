"""The journal's file: what is refused, in what words, and that a refusal changes nothing."""

import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from coresched.errors import InputError
from coresched.service.batches.facts import BatchClosed, TurnStarted, WorkerRegistered
from coresched.service.journal.store import Forgotten, Row, Store

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
    ended = subprocess.run([sys.executable, "-c", program, str(path)], cwd=Path(__file__).parents[3])
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


def test_names_links_and_empty_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (":memory:", "file:x?mode=memory", "a b%41#?.db", "none2", "\udcff.db"):
        store = Store(name)
        store.begin()
        store.close()
        assert name in os.listdir(tmp_path)
    (tmp_path / "folder").mkdir()
    os.symlink(written(tmp_path / "folder" / "real"), "link")
    os.symlink(tmp_path / "folder" / "new", "dangling")
    store = Store("link")
    assert len(list(store.facts())) == 301
    store.begin()
    store.write([Row(900, None, b"x")])
    assert (tmp_path / "folder" / "real-wal").exists()
    store.close()
    Store("dangling").leave()
    assert (tmp_path / "folder" / "new").exists()
    (tmp_path / "empty").touch()
    Store("empty").leave()


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


def test_places_where_no_file_can_be_are_refused(tmp_path: Path) -> None:
    assert "is a directory" in refusal(tmp_path)
    assert "which is no directory; create it first" in refusal(tmp_path / "absent" / "j")
    os.mkfifo(tmp_path / "pipe")
    assert "is not a regular file" in refusal(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    refusal(tmp_path / "loop")
    refusal(tmp_path / ("n" * 300))
    for name in ("", "a\0b"):
        with pytest.raises(InputError, match="must be the name of a file"):
            Store(name)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_directory_that_takes_no_files_is_refused() -> None:
    refusal("/proc/journal.sqlite3")


@pytest.mark.parametrize("unwritable", ["file", "directory"])
def test_what_this_user_may_not_write_is_refused(tmp_path: Path, unwritable: str) -> None:
    path = written(tmp_path / "j")
    target = path if unwritable == "file" else tmp_path
    mode = target.stat().st_mode
    program = (
        "import sys\nfrom coresched.service.journal.store import Store\n"
        "import os\nif os.geteuid() == 0:\n    os.setgid(65534); os.setuid(65534)\n"
        "try:\n    Store(sys.argv[1])\nexcept ValueError as error:\n    print(error)\n"
    )
    for parent in (tmp_path, *tmp_path.parents):  # so that whoever runs this reaches the directory
        if parent.name and parent.stat().st_uid == os.geteuid() and str(parent) != "/tmp":
            parent.chmod(parent.stat().st_mode | 0o011)
    target.chmod(0o444 if unwritable == "file" else 0o555)
    try:
        said = subprocess.run(
            [sys.executable, "-c", program, str(path)],
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
        )
    finally:
        target.chmod(mode)
    assert said.stdout.startswith(f"--journal {str(path)!r} "), said.stderr
    assert "may not" in said.stdout


def test_a_second_process_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "j"
    program = "import sys\nfrom coresched.service.journal.store import Store\nStore(sys.argv[1])"
    for begun in (False, True):
        store = Store(str(path))
        if begun:
            store.begin()
            store.write(rows())
        before = {name: (tmp_path / name).stat() for name in ("j", "j-wal")[: 1 + begun]}
        second = subprocess.run(
            [sys.executable, "-c", program, str(path)],
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
        )
        assert second.stderr.splitlines()[-1].endswith(
            f"--journal {str(path)!r} is in use by another coresched serve; "
            "stop that one or give another --journal FILE"
        )
        for name, found in before.items():  # reading them here would end this process's lock
            now = (tmp_path / name).stat()
            assert (now.st_mtime_ns, now.st_size) == (found.st_mtime_ns, found.st_size)
        store.close()
