"""`mini-extra swebench`, the benchmark runner itself, as a process; and what its runs leave."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from integration.engines.loaded import LoadedProcess, start_loaded
from integration.engines.programs import TO_ITS_END
from integration.miniswe_harness.environment import MINI_SWE_AGENT

RUNNER = Path(__file__).with_name("run_benchmark.py")


@dataclass(frozen=True)
class Run:
    """One run of the runner. `folder` has its configuration, its commands and its results."""

    folder: Path
    process: LoadedProcess
    _printed: IO[bytes]

    def finish(self, expected: int = 0, timeout_s: float = 300) -> str:
        """What it printed. Fails where it did not end as expected."""
        status = self.process.wait(timeout_s)
        self._printed.seek(0)
        printed = self._printed.read().decode()
        assert status == expected, printed
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


@contextmanager
def running(tasks: Path, folder: Path, threads: int, *options: str, **variables: str) -> Iterator[Run]:
    """On the tasks of `tasks`, with `gated.yaml` of `folder` on top of mini-swe-agent's own settings."""
    settings = {"MSWEA_GLOBAL_CONFIG_DIR": str(folder / "settings")}
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("CORESCHED_")}
    command = [str(RUNNER), str(folder / "datasets"), "swebench"]
    command += ["--subset", str(tasks / "tasks"), "--split", "test"]
    command += ["-o", str(folder / "out"), "-w", str(threads)]
    command += ["-c", "swebench.yaml", "-c", str(folder / "gated.yaml"), *options]
    environment = {**inherited, **MINI_SWE_AGENT.variables, **settings, **variables}
    with (
        tempfile.TemporaryFile() as printed,
        start_loaded(
            MINI_SWE_AGENT, TO_ITS_END, *command, output=printed, errors=printed, environment=environment
        ) as process,
    ):
        yield Run(folder, process, printed)


def commands(folder: Path) -> list[tuple[str, int, int]]:
    """Each command's task, and when it ran by its own clock in nanoseconds."""
    found = []
    begun: dict[str, int] = {}
    for line in (folder / "work" / "tool.log").read_text().splitlines():
        what, name, at = line.split()
        if what == "start":
            begun[name] = int(at)
        else:
            found.append((name, begun.pop(name), int(at)))
    assert not begun
    return found


def intervals(*folders: Path) -> list[tuple[int, int]]:
    """When each command ran, of all runs together."""
    return [(start, end) for folder in folders for _, start, end in commands(folder)]


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
