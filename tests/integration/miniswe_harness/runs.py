"""`mini-extra swebench`, the benchmark runner itself, as a process; and what its runs leave."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration.miniswe_harness.environment import OFFLINE

RUNNER = "from minisweagent.run.utilities.mini_extra import main; main()"  # as the command `mini-extra` does


@dataclass(frozen=True)
class Run:
    """One run of the runner. `folder` has its configuration, its commands and its results."""

    folder: Path
    process: subprocess.Popen[str]

    def finish(self, timeout_s: float = 300) -> str:
        """What it printed. Fails where it did not end well."""
        try:
            printed, _ = self.process.communicate(timeout=timeout_s)
        finally:
            self.process.kill()
        assert self.process.returncode == 0, printed
        return printed

    @property
    def outputs(self) -> Path:
        return self.folder / "out"

    def submissions(self) -> dict[str, str]:
        predictions = json.loads((self.outputs / "preds.json").read_text())
        return {name: one["model_patch"] for name, one in sorted(predictions.items())}

    def trajectories(self) -> dict[str, dict[str, Any]]:
        found = sorted(self.outputs.glob("*/*.traj.json"))
        return {path.parent.name: json.loads(path.read_text()) for path in found}

    def observations(self) -> dict[str, list[str]]:
        """What the model was told of each task's commands."""
        return {
            name: [message["content"] for message in one["messages"] if message["role"] in ("tool", "exit")]
            for name, one in self.trajectories().items()
        }

    def log(self) -> str:
        return (self.outputs / "minisweagent.log").read_text()


def start_run(python: Path, tasks: Path, folder: Path, threads: int, *options: str, **variables: str) -> Run:
    """On the tasks of `tasks`, with `gated.yaml` of `folder` on top of mini-swe-agent's own settings."""
    home = {"HF_HOME": str(folder / "huggingface"), "MSWEA_GLOBAL_CONFIG_DIR": str(folder / "settings")}
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("CORESCHED_")}
    command = [str(python), "-c", RUNNER, "swebench", "--subset", str(tasks / "tasks"), "--split", "test"]
    command += ["-o", str(folder / "out"), "-w", str(threads)]
    command += ["-c", "swebench.yaml", "-c", str(folder / "gated.yaml"), *options]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**inherited, **OFFLINE, **home, **variables},
        start_new_session=True,
    )
    return Run(folder, process)


def intervals(*folders: Path) -> list[tuple[int, int]]:
    """When each command ran, by its own clock in nanoseconds; of all runs together."""
    found = []
    for folder in folders:
        begun: dict[str, int] = {}
        for line in (folder / "work" / "tool.log").read_text().splitlines():
            what, name, at = line.split()
            if what == "start":
                begun[name] = int(at)
            else:
                found.append((begun.pop(name), int(at)))
        assert not begun
    return found


def most_at_once(ran: list[tuple[int, int]]) -> int:
    steps = sorted([(start, 1) for start, _ in ran] + [(end, -1) for _, end in ran])
    running = most = 0
    for _, step in steps:
        running += step
        most = max(most, running)
    return most


def makespan_s(ran: list[tuple[int, int]]) -> float:
    """From the first command's start to the last one's end, in seconds."""
    return (max(end for _, end in ran) - min(start for start, _ in ran)) / 1e9


def requests(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]
