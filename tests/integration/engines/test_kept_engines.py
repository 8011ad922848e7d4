"""Engines that nobody uses any more leave the disk."""

import subprocess
import sys
from pathlib import Path

from integration.engines.environment import CHECKOUT
from integration.engines.kept import remove_other_engines

HELD = """
import fcntl, sys
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
USED = """
import sys
from pathlib import Path
from integration.engines.kept import use
use(Path(sys.argv[1]))
print("used", flush=True)
sys.stdin.read()
"""


def test_a_new_engine_takes_the_place_of_those_that_nobody_uses(tmp_path: Path) -> None:
    mine, old, unfinished, used, installing = (
        tmp_path / f"sglang-0.5.{name}"
        for name in (
            "23-" + "a" * 12,
            "22-" + "b" * 12,
            "22-" + "c" * 12 + ".unfinished",
            "22-" + "d" * 12,
            "22-" + "e" * 12,
        )
    )
    others = [tmp_path / name for name in ("sglang-0.5.22", "wheels", "vllm-0.32.0-" + "f" * 12)]
    for folder in (mine, old, unfinished, used, installing, *others):
        (folder / "bin").mkdir(parents=True)
    holders = [(USED, used), (HELD, tmp_path / f"{installing.name}.lock")]
    processes = []
    for program, path in holders:
        command = [sys.executable, "-c", program, path]
        process = subprocess.Popen(
            command, cwd=CHECKOUT / "tests", stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline()
    try:
        remove_other_engines(mine)
        left = {path for path in tmp_path.iterdir() if path.is_dir()}
        assert left == {mine, used, installing, *others}
    finally:
        for process in processes:
            process.communicate()
    remove_other_engines(mine)
    assert {path for path in tmp_path.iterdir() if path.is_dir()} == {mine, *others}
