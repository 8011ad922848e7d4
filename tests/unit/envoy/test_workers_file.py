"""What the picker reads of --workers-file, and when it reads it again."""

import os
from pathlib import Path

import pytest
from coresched_envoy.members import WorkersFile

from coresched.errors import InputError


def test_lines_have_comments_spaces_weights_and_any_ends(tmp_path: Path) -> None:
    path = tmp_path / "workers"
    path.write_bytes(b"\xef\xbb\xbf10.0.0.1:80 # the first\r\n\n# none\n 10.0.0.2:80 = 2.5")
    assert WorkersFile(path).read() == {"10.0.0.1:80": 1.0, "10.0.0.2:80": 2.5}


def test_what_is_being_written_is_read_once_it_stands_still(tmp_path: Path) -> None:
    path = tmp_path / "workers"
    path.write_text("10.0.0.1:80\n")
    file = WorkersFile(path)
    file.read()
    assert not file.changed()
    path.write_text("")
    assert not file.changed()
    path.write_text("10.0.0.2:80\n10.0.0.3:80\n")
    assert not file.changed()
    assert file.changed()
    assert len(file.read()) == 2
    assert not file.changed()


def test_a_file_that_is_gone_is_told_once_and_read_when_it_is_back(tmp_path: Path) -> None:
    path = tmp_path / "workers"
    path.write_text("10.0.0.1:80\n")
    file = WorkersFile(path)
    file.read()
    path.unlink()
    assert [file.changed(), file.changed()] == [False, True]
    file.missed()
    assert [file.changed(), file.changed()] == [False, False]
    path.write_text("10.0.0.1:80\n")
    assert [file.changed(), file.changed()] == [False, True]


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "workers"
    os.mkfifo(path)
    with pytest.raises(InputError, match=r"--workers-file .*workers must be a regular file"):
        WorkersFile(path).read()
