"""`coresched replay` on servers of the tiny model, and what it wrote."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coresched_vllm.local.tiny_model import TOKEN_IDS
from integration.engines.environment import CHECKOUT
from integration.vllm_engine.servers import Server


def replay(trace: Path, to: Path, servers: Sequence[Server], *options: str) -> list[str]:
    command = [sys.executable, "-m", "coresched", "replay", str(trace), "--output", str(to)]
    command += [f"--endpoint={server.name}={server.url}" for server in servers]
    return [*command, "--token-ids={}:{}".format(*TOKEN_IDS), "--environment-concurrency=2", *options]


def measured(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=CHECKOUT)
    assert (done.returncode, done.stderr) == (0, "")
    return metrics_of(Path(command[command.index("--output") + 1]))


def metrics_of(folder: Path) -> dict[str, Any]:
    metrics: dict[str, Any] = json.loads((folder / "summary.json").read_text())["metrics"]
    return metrics


def events_of(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = (folder / "events.jsonl").read_bytes().split(b"\n")[:-1]  # without half a line
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def wait_for_turns(folder: Path, turns: int) -> None:
    deadline = time.monotonic() + 300
    while not (folder / "events.jsonl").exists() or len(events_of(folder, "inference")) < turns:
        assert time.monotonic() < deadline
        time.sleep(0.02)
