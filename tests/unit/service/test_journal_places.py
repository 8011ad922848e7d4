"""Where a journal may be, and that one process has it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from journal_files import CHECKOUT, in_another_process, refusal, rows, written

from coresched.errors import InputError
from coresched.service.journal.store import Row, Store


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
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
        )
    finally:
        target.chmod(mode)
    assert said.stdout.startswith(f"--journal {str(path)!r} "), said.stderr
    assert "may not" in said.stdout


def test_a_second_process_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "j"
    for begun in (False, True):
        store = Store(str(path))
        if begun:
            store.begin()
            store.write(rows())
        before = {name: (tmp_path / name).stat() for name in ("j", "j-wal")[: 1 + begun]}
        second = in_another_process(path)
        assert second.stderr.splitlines()[-1].endswith(
            f"--journal {str(path)!r} is in use by another coresched serve; "
            "stop that one or give another --journal FILE"
        )
        for name, found in before.items():  # reading them here would end this process's lock
            now = (tmp_path / name).stat()
            assert (now.st_mtime_ns, now.st_size) == (found.st_mtime_ns, found.st_size)
        store.close()


def test_a_second_one_in_the_same_process_is_refused_and_ends_no_lock(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "j"))
    os.symlink(tmp_path / "j", tmp_path / "link")
    assert "is in use by another coresched serve" in refusal(tmp_path / "link")
    assert "is in use by another coresched serve" in in_another_process(tmp_path / "j").stderr
    store.leave()
    Store(str(tmp_path / "j")).leave()
