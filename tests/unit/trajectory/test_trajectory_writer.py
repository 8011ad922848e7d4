import gzip
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from trajectory_strategies import batches

from coresched.errors import InputError
from coresched.trajectory.generator import generate
from coresched.trajectory.reader import read_trajectories
from coresched.trajectory.schema import Environment, Trajectory, Turn
from coresched.trajectory.writer import write_trajectories

NAMES = ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"]
TASK = Trajectory(id="t", initial_prompt_tokens=1, turns=(Turn(1),))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batch=batches)
def test_what_is_written_is_read_back(tmp_path_factory: Any, batch: list[Trajectory]) -> None:
    for name in NAMES:
        path = tmp_path_factory.getbasetemp() / name
        assert write_trajectories(path, batch) == len(batch)
        assert list(read_trajectories(path)) == batch


def test_the_three_formats_hold_the_same_lines_and_the_same_input_gives_the_same_bytes(
    tmp_path: Path,
) -> None:
    for name in NAMES:
        write_trajectories(tmp_path / name, generate("swe", 5, 1))
        first = (tmp_path / name).read_bytes()
        write_trajectories(tmp_path / name, generate("swe", 5, 1))
        assert (tmp_path / name).read_bytes() == first
    plain = (tmp_path / "a.jsonl").read_bytes()
    # Neither a time stamp nor a file name in the gzip header: the same bytes tomorrow, under another name.
    assert (tmp_path / "a.jsonl.gz").read_bytes()[3:8] == bytes(5)
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()) == plain
    with zstandard.open(tmp_path / "a.jsonl.zst") as stream:
        assert stream.read() == plain


@pytest.mark.parametrize("name", NAMES)
def test_a_failing_source_leaves_the_old_file_and_nothing_else(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"old")

    def failing() -> Iterator[Trajectory]:
        yield from generate("swe", 20, 1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_trajectories(tmp_path / name, failing())
    assert os.listdir(tmp_path) == [name]
    assert (tmp_path / name).read_bytes() == b"old"


def test_a_killed_run_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"old")
    script = """
import os, signal, sys
from coresched.trajectory.generator import generate
from coresched.trajectory.writer import write_trajectories

def dying():
    yield from generate("swe", 50, 1)
    os.kill(os.getpid(), signal.SIGKILL)

write_trajectories(sys.argv[1], dying())
"""
    root = Path(__file__).parents[3]
    run = subprocess.run([sys.executable, "-c", script, str(path)], cwd=root, timeout=60, check=False)
    assert run.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.jsonl").symlink_to("real.jsonl")
    write_trajectories(tmp_path / "link.jsonl", [TASK])
    assert (tmp_path / "link.jsonl").is_symlink()
    assert list(read_trajectories(tmp_path / "real.jsonl")) == [TASK]


def test_the_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    write_trajectories(tmp_path / "a.jsonl", [TASK])
    (tmp_path / "other").touch()
    assert (tmp_path / "a.jsonl").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([], "there are no trajectories to write; give at least one"),
        ([TASK, TASK], 'trajectory 2 (id "t"): an earlier trajectory has the same id; an id must be unique'),
        (
            [msgspec.structs.replace(TASK, turns=(Turn(1.5),))],  # type: ignore[arg-type]
            'trajectory 1 (id "t"): turns[0].output_tokens is 1.5; it must be an integer >= 1',
        ),
        (
            [msgspec.structs.replace(TASK, turns=(Turn(1, env=Environment(kind=3)),))],  # type: ignore[arg-type]
            'trajectory 1 (id "t"): turns[0].env.kind is 3; it must be a text, or absent',
        ),
        (
            [msgspec.structs.replace(TASK, meta={"a": object()})],
            'trajectory 1 (id "t") cannot be written as JSON: ',
        ),
        (
            [msgspec.structs.replace(TASK, source="\ud800")],
            'trajectory 1 (id "t") cannot be written as JSON: ',
        ),
    ],
)
def test_what_could_not_be_read_back_is_not_written(
    tmp_path: Path, batch: list[Trajectory], message: str
) -> None:
    with pytest.raises(InputError) as refused:
        write_trajectories(tmp_path / "a.jsonl", batch)
    assert message in str(refused.value)
    assert os.listdir(tmp_path) == []


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory; give the name of a file in it"):
        write_trajectories(tmp_path, [TASK])
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        write_trajectories(tmp_path / "none" / "a.jsonl", [TASK])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is not a regular file"):
        write_trajectories(tmp_path / "pipe", [TASK])
