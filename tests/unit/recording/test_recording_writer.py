"""What a recorder leaves in its folder, also where the disk does not take it."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from coresched.errors import InputError
from coresched.recording import writer
from coresched.recording.events import Admission, Completion
from coresched.recording.reader import read_sources, recording_files
from coresched.recording.writer import Recorder, RecordingError


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_recorder_has_a_file_that_begins_with_who_writes(tmp_path: Path) -> None:
    for _ in range(2):
        recorder = Recorder(tmp_path / "run", "harness")
        recorder.write(Admission("a", 0.5))
        recorder.close()
        recorder.write(Completion("a", 1.0))  # too late, and not written
    files = recording_files(tmp_path / "run")
    assert [path.name.split("-")[1] for path in files] == ["harness", "harness"]
    assert [path.name.removesuffix(".jsonl").split("-")[-2:] for path in files] == [
        [str(os.getpid()), "0"],
        [str(os.getpid()), "1"],
    ]
    header, event = lines(files[0])
    assert (header["recording"], header["source"], header["pid"]) == (1, "harness", os.getpid())
    assert event == {"event": "admission", "sample": "a", "at_s": 0.5}


def test_a_recorder_without_events_leaves_no_file(tmp_path: Path) -> None:
    Recorder(tmp_path, "harness").close()
    assert recording_files(tmp_path) == []


def test_threads_write_whole_lines(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "transport")

    def write(number: int) -> None:
        for place in range(200):
            recorder.write(Admission(f"{number}-{place}" * 20, place))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close()
    (path,) = recording_files(tmp_path)
    assert len({line["sample"] for line in lines(path)[1:]}) == 1600


def _write_and_close(recorder: Recorder) -> None:
    recorder.write(Admission("child", 1.0))
    recorder.close()


def test_a_forked_child_goes_on_in_a_file_of_its_own(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "harness")
    recorder.write(Admission("parent", 0.0))
    child = multiprocessing.get_context("fork").Process(target=_write_and_close, args=(recorder,))
    child.start()
    child.join()
    recorder.close()
    assert child.exitcode == 0
    written = {str(lines(path)[0]["pid"]): lines(path)[1]["sample"] for path in recording_files(tmp_path)}
    assert written == {str(os.getpid()): "parent", str(child.pid): "child"}


def test_what_is_no_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "replay").mkdir()
    (tmp_path / "replay" / "run.json").touch()
    (tmp_path / "replays").mkdir()
    (tmp_path / "replays" / "comparison.json").touch()
    for name, expected in (
        ("file", "is not a directory; choose another name"),
        ("no/where", "there is no directory .*; create it first"),
        ("replay", "replay' is the folder of a replay; choose another"),
        ("replays", "replays' is the folder of a replay; choose another"),
        ("x" * 300, "cannot be used: File name too long"),
        ("\0", "cannot be used: embedded null byte"),
    ):
        with pytest.raises(InputError, match=f"^--record .*{expected}") as refused:
            Recorder(tmp_path / name, "gateway", field="--record")
        assert str(refused.value).count("--record") == 1
    with pytest.raises(InputError, match=r"^record is empty; give the path of a folder"):
        Recorder("", "harness")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InputError, match=r"record .* is not writable; choose another"):
        Recorder(tmp_path, "gateway")
    with pytest.raises(TypeError, match="record must be the path of a folder, got 5"):
        Recorder(5, "harness")  # type: ignore[arg-type]


# Files may have 2,000 bytes, then as many as they like.
FULL_DISK = """
import logging, resource, sys, time
from coresched.recording.events import Admission
from coresched.recording.writer import Recorder, RecordingError

logging.basicConfig(format="%(name)s: %(message)s")
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
recorder = Recorder(sys.argv[1], "harness")
for number in range(40):
    recorder.write(Admission(f"sample {number}" * 5, number))
while not recorder._file._lost_in_all:
    time.sleep(0.01)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
recorder.write(Admission("after", 40))
try:
    recorder.close()
except RecordingError as error:
    print(error)
recorder.close()
"""


def test_a_full_disk_is_told_once_when_it_happens_in_the_file_and_at_the_end(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, check=True
    )
    (path,) = recording_files(tmp_path)
    _, *events = lines(path)  # all of them whole
    (lost,) = [event["count"] for event in events if event["event"] == "lost"]
    written = sum(event["event"] == "admission" for event in events)
    assert (lost + written, events[-1]["sample"]) == (41, "after")
    assert lost > 0
    assert done.stderr.count("the run goes on, and its recording will lack events") == 1
    assert done.stderr.startswith(f"coresched.recording: cannot write the recording {path}: File too large")
    several = "1 event" if lost == 1 else f"{lost} events"
    (said,) = done.stdout.splitlines()
    assert said == (f"the recording {str(path)!r} lacks {several} that could not be written: File too large")
    (fault,) = read_sources([path]).faults
    assert fault.endswith("missing before it, which could not be written")


def test_a_folder_that_went_away_is_an_error_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(tmp_path / "run", "harness")
    (tmp_path / "run").rmdir()
    recorder.write(Admission("a", 0.0))
    with pytest.raises(RecordingError, match=r"lacks 1 event .*: No such file or directory"):
        recorder.close()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_disk_that_hangs_holds_up_nobody_and_what_does_not_fit_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, begun, write_now = threading.Event(), threading.Event(), os.write

    def write(descriptor: int, data: bytes) -> int:
        begun.set()
        go_on.wait()
        return write_now(descriptor, data)

    monkeypatch.setattr(writer, "MOST_PENDING", 3)
    monkeypatch.setattr(os, "write", write)
    recorder = Recorder(tmp_path, "harness")
    recorder.write(Admission("0", 0.0))
    begun.wait()
    for number in range(1, 6):
        recorder.write(Admission(str(number), number))
    monkeypatch.setattr(writer, "CLOSE_S", 0.01)
    file = recorder._file
    assert file is not None
    with pytest.raises(RecordingError, match=r"was not written to its end within 0.01 s"):
        recorder.close()
    go_on.set()
    file._thread.join()
    (path,) = recording_files(tmp_path)
    assert [line.get("sample") for line in lines(path)[1:]] == ["0", None, "1", "2", "3"]
    assert lines(path)[2]["count"] == 2
    with pytest.raises(RecordingError, match=r"lacks 2 events .*: the disk does not keep up"):
        file.close()


def test_what_is_no_text_is_lost_and_told(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "harness")
    recorder.write(Admission("\ud83d", 0.0))
    recorder.write(Admission("a", 1.0))
    with pytest.raises(RecordingError, match=r"lacks 1 event .*surrogates not allowed"):
        recorder.close()
    (path,) = recording_files(tmp_path)
    assert lines(path)[-1]["sample"] == "a" or lines(path)[-2]["sample"] == "a"
