"""A batch from end to end: the service, `coresched replay` as the harness, and two real SGLang servers."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from integration.sglang_engine.environment import CHECKOUT
from integration.sglang_engine.servers import SPEED, boot
from served import served

from coresched.capacity.plan import Plan
from coresched.trajectory.generator import generate
from coresched.trajectory.writer import write_trajectories

pytestmark = pytest.mark.sglang

NAMES = ("a", "b")
TURNS = 5
SAMPLES = 10


@pytest.fixture(scope="module")
def endpoints(
    sglang_python: Path, config: Path, planned: Plan, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[str]]:
    folder = tmp_path_factory.mktemp("servers")
    flags = (*planned.engine_flags, "--mem-fraction-static", "0.9", "--schedule-policy", "routing-prefix")
    flags += ("--enable-cache-report", "--log-level-http", "warning", "--sleep-on-idle")
    with ExitStack() as stack, ThreadPoolExecutor(len(NAMES)) as pool:
        booting = [boot(sglang_python, config, flags, log=folder / name) for name in NAMES]
        running = list(pool.map(stack.enter_context, booting))
        yield [f"--endpoint={name}={server.url}" for name, server in zip(NAMES, running, strict=True)]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "traces.jsonl"
    short = [
        msgspec.structs.replace(one, turns=one.turns[:TURNS]) for one in generate("swe", SAMPLES, seed=3)
    ]
    write_trajectories(path, short)
    return path


def replay(trace: Path, folder: Path, *options: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The metrics of a batch, and its turns."""
    command = [sys.executable, "-m", "coresched", "replay", str(trace), "--output", str(folder)]
    limits = ["--environment-concurrency", "2", "--speed", str(SPEED), "--flush-cache"]
    done = subprocess.run(
        [*command, *limits, *options], capture_output=True, text=True, timeout=300, cwd=CHECKOUT
    )
    assert (done.returncode, done.stderr) == (0, "")
    metrics: dict[str, Any] = json.loads((folder / "summary.json").read_text())["metrics"]
    events = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
    return metrics, [event for event in events if event["event"] == "inference"]


def test_a_coordinated_batch_reuses_more_than_one_under_stock_rules(
    endpoints: list[str], trace: Path, tmp_path: Path
) -> None:
    stock_rules = ("--sample-concurrency=2", "--environment-policy=fcfs", "--router=round-robin")
    stock, _ = replay(trace, tmp_path / "stock", *endpoints, *stock_rules)
    with served("--worker", NAMES[0], "--worker", NAMES[1]) as (address, _):
        ours, turns = replay(
            trace, tmp_path / "ours", *endpoints, "--sample-concurrency=6", f"--service={address}"
        )
    for metrics in (stock, ours):
        assert metrics["completed_samples"] == SAMPLES
        assert all(metrics["turns_by_worker"].values())
    homes: dict[str, set[str]] = {}
    for turn in turns:
        homes.setdefault(turn["sample"], set()).add(turn["worker"])
    assert sum(len(workers) == 1 for workers in homes.values()) > SAMPLES / 2
    assert ours["cache_reuse"] > stock["cache_reuse"] + 0.1
