"""The interpreter that these tests run the engine with."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from integration.sglang_engine.environment import CHECKOUT, ENGINE_VERSION, OFFLINE, remove_other_engines

from coresched.capacity.sglang import ENGINE_VERSION as PRICED

pytestmark = pytest.mark.sglang

LOOK = """
import json, os
from importlib.metadata import entry_points, version
import coresched.core.prefix, sglang
points = {group: sorted(point.value for point in entry_points(group=group) if point.dist.name == "coresched")
    for group in ("sglang.srt.plugins", "sglang.srt.platforms")}
print(json.dumps([version("sglang"), coresched.core.prefix.__file__, points]))
"""


def test_it_has_the_engine_and_this_checkout_with_its_entry_points(sglang_python: Path) -> None:
    done = subprocess.run(
        [sglang_python, "-c", LOOK], capture_output=True, text=True, cwd="/", env=OFFLINE, check=True
    )
    version, core, points = json.loads(done.stdout.splitlines()[-1])
    assert version == ENGINE_VERSION == PRICED
    assert Path(core).is_relative_to(CHECKOUT)
    declared = (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
    for group, values in points.items():
        assert values, group
        assert all(f'= "{value}"\n' in declared for value in values)


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
from integration.sglang_engine.environment import use
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
