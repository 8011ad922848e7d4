"""`coresched simulate --worker sglang`: two of SGLang's real schedulers in lockstep."""

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from integration.sglang_engine.environment import OFFLINE

from bench.sglang_policies.models import write_model
from bench.sglang_policies.setups import SHORT_QUEUE
from coresched.trajectory.writer import write_trajectories

pytestmark = pytest.mark.sglang

# More trajectories at once than two workers of 24 states hold.
BATCH = replace(
    SHORT_QUEUE, samples=24, turns=4, initial_prompt_tokens=2_000, output_tokens=16, response_tokens=600
).trajectories(0)
DEPLOYMENT = (
    *("--workers", "2", "--sample-concurrency", "20", "--memory", "80GiB", "--weights", "50GiB"),
    # 24 states and as many labels as a worker has of trajectories.
    *("--state-ratio", "1.14", "--label-capacity", "12"),
)
FLAGS = (
    *("--context-length", "65536", "--max-running-requests", "4", "--max-mamba-cache-size", "24"),
    *("--max-total-tokens", "200000", "--mamba-max-states-per-path", "1"),
)

Simulate = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def simulate(sglang_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Simulate:
    """The named runs, as the command prints them."""
    folder = tmp_path_factory.mktemp("simulate")
    write_trajectories(folder / "traces.jsonl", BATCH)
    model = write_model("ling-3.0-flash", folder)

    def run(names: str) -> list[dict[str, Any]]:
        command = (
            *(sglang_python, "-m", "coresched", "simulate", "traces.jsonl", "--worker", "sglang", "--json"),
            *("--runs", names, "--model-config", model, *DEPLOYMENT, "--", *FLAGS),
        )
        done = subprocess.run(
            command, cwd=folder, env=os.environ | OFFLINE, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        runs: list[dict[str, Any]] = json.loads(done.stdout)["runs"]
        return runs

    return run


def test_the_ladder_runs_on_real_schedulers_and_repeats(simulate: Simulate) -> None:
    fcfs, ours = simulate("lbch,routing-prefix")
    turns = sum(len(each.turns) for each in BATCH)
    for run in (fcfs, ours):
        assert run["input_tokens"] == sum(sum(each.prompt_tokens()) for each in BATCH)
        assert run["output_tokens"] == sum(turn.output_tokens for each in BATCH for turn in each.turns)
        assert run["later_turns"] == turns - len(BATCH)
        assert len(run["worker_busy"]) == 2
        assert all(0.5 < busy <= 1 for busy in run["worker_busy"])
        assert run["makespan_s"] >= run["lower_bound_s"]
        assert run["evictions"] is run["priority_calculation_s"] is None
    assert ours["later_turns_without_hit"] < fcfs["later_turns_without_hit"]
    assert ours["cache_reuse"] > fcfs["cache_reuse"] + 0.05
    assert ours["makespan_s"] < fcfs["makespan_s"]
    assert simulate("routing-prefix") == [ours]
