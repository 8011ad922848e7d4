"""Runs of BFCL against a worker with a script, and what is found of them afterwards."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from integration.bfcl_harness.environment import BFCL, HERE
from integration.engines.loaded import LoadedProcess, run_loaded, start_loaded
from simulated_worker import running_worker

MODEL = "openbmb/MiniCPM-SALA-FC"
"""A model of BFCL whose handler sends to OPENAI_BASE_URL."""
TOOL_S = "0.05"

SHIPPED = HERE.parents[2] / "coresched" / "lab" / "simulator" / "models" / "h20-tp4-hybrid.json"


@contextmanager
def scripted_worker(folder: Path, script: str, model: str = MODEL, speed: int = 20) -> Iterator[str]:
    """URL of a worker that serves `model` by a script; its requests are in `requests.jsonl`."""
    served = folder / "served.json"
    served.write_text(json.dumps({**json.loads(SHIPPED.read_text()), "name": model}))
    (folder / "script.jsonl").write_text(script)
    options = ("--model", served, "--script", folder / "script.jsonl", "--speed", speed)
    with running_worker(*map(str, options), "--request-log", str(folder / "requests.jsonl")) as (url, _):
        yield url


@dataclass(frozen=True)
class Project:
    """A folder of BFCL's, with the test cases to generate, and the worker to ask."""

    folder: Path
    url: str

    def environment(self, **variables: str) -> dict[str, str]:
        gate = [name for name in os.environ if name.startswith("CORESCHED_")]
        return {
            **{name: value for name, value in os.environ.items() if name not in gate},
            **BFCL.variables,
            "BFCL_PROJECT_ROOT": str(self.folder),
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": f"{self.url}/v1",
            **variables,
        }

    def choose(self, category: str, cases: Sequence[str]) -> None:
        """The test cases of `generate --run-ids`."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / "test_case_ids_to_generate.json").write_text(json.dumps({category: cases}))

    def generate(self, result: str, *options: str, model: str = MODEL) -> tuple[str, ...]:
        """The words of bfcl's command line; the rows go to the folder `result`."""
        return ("generate", "--model", model, "--run-ids", "--result-dir", result, *options)

    def run(self, *words: str, **gate: str) -> subprocess.CompletedProcess[str]:
        """`python -m coresched_bfcl`, to its end, with these environment variables."""
        return run_loaded(
            BFCL, "-m", "coresched_bfcl", *words, environment=self.environment(**gate), timeout_s=120
        )

    def run_observed(self, log: Path, *words: str, **gate: str) -> subprocess.CompletedProcess[str]:
        """The same with tools that take time, and note it in `log`."""
        command = (HERE / "observed_tools.py", log, TOOL_S, *words)
        return run_loaded(BFCL, *command, environment=self.environment(**gate), timeout_s=120)

    @contextmanager
    def start_observed(
        self, log: Path, errors: IO[bytes], *words: str, **gate: str
    ) -> Iterator[LoadedProcess]:
        command = (HERE / "observed_tools.py", log, TOOL_S, *words)
        with (
            open(os.devnull, "wb") as output,
            start_loaded(
                BFCL, *command, output=output, errors=errors, environment=self.environment(**gate)
            ) as process,
        ):
            yield process

    def rows(self, result: str) -> dict[str, dict[str, Any]]:
        """The result rows by test case; a case with two rows fails the test."""
        rows = [
            json.loads(line)
            for path in (self.folder / result).rglob("*_result.json")
            for line in path.read_text().splitlines()
        ]
        by_case = {row["id"]: row for row in rows}
        assert len(by_case) == len(rows)
        return by_case


def jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def most_at_once(calls: Sequence[Mapping[str, float]]) -> int:
    """How many of these calls ran at the same time, at most."""
    changes = sorted(
        [(call["start"], 1) for call in calls] + [(call["end"], -1) for call in calls],
    )
    running = most = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most
