"""`coresched simulate` on an engine that a stand-in plays, and what becomes of its processes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from coresched.trajectory.generator import generate
from coresched.trajectory.writer import write_trajectories

CHECKOUT = Path(__file__).parents[1]


class SimulateCommand:
    """The command in ``folder``, where `--worker` ``worker`` is the package of ``files``.

    The stand-in finds what it shall do in the variable STAND_IN, and writes process ids, its own and its
    parent's, to the file that STAND_IN_FACTS names.
    """

    def __init__(self, folder: Path, worker: str, files: Mapping[str, str], entry_points: str = "") -> None:
        self.folder, self.worker, self.facts = folder, worker, folder / "facts"
        packages = folder / "packages"
        for name, text in files.items():
            file = packages / worker / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        metadata = packages / "coresched-0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Name: coresched\nVersion: 0\n")
        (metadata / "entry_points.txt").write_text(entry_points)
        (folder / "config.json").write_text(json.dumps({"architectures": ["Qwen3ForCausalLM"]}))
        write_trajectories(folder / "t.jsonl", generate("terminal", 4, 1))

    def start(self, mode: str, flags: Sequence[str] = ()) -> "subprocess.Popen[str]":
        command = (
            *(sys.executable, "-m", "coresched", "simulate", "t.jsonl", "--worker", self.worker),
            *("--model-config", "config.json", "--memory", "80GiB", "--weights", "50GiB", "--", *flags),
        )
        paths = (self.folder / "packages", CHECKOUT, CHECKOUT / "adapters")
        environ = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "TMPDIR": str(self.folder),
            "STAND_IN": mode,
            "STAND_IN_FACTS": str(self.facts),
        }
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.folder, env=environ, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )

    def run(self, mode: str, flags: Sequence[str] = ()) -> tuple[int, str]:
        with self.start(mode, flags) as process:
            out, errors = process.communicate(timeout=120)
        assert out == ""
        return process.returncode, errors

    def pids(self) -> list[int]:
        """Of an engine that is booting or loading, and of its parent."""
        deadline = time.monotonic() + 60
        while not (self.facts.exists() and self.facts.read_text().endswith("\n")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return [int(word) for word in self.facts.read_text().split()]
