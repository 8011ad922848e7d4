"""The tau2 adapter on a stand-in of tau2 (README.md there): what is gated, labelled and reported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from served import served
from simulated_worker import CHECKOUT, running_worker

TASKS = ("create_task", "look_only")
TRIALS = 4
SAMPLES = [f"{task}{suffix}" for task in TASKS for suffix in ("", "#2", "#3", "#4")]
GATE = {"CORESCHED_SAMPLE_CONCURRENCY": "8", "CORESCHED_ENVIRONMENT_CONCURRENCY": "1"}
SCRIPT = [
    {
        "match": "Hi! How can I help you today?",
        "replies": [{"content": "Please create it."}, {"content": "###STOP###"}],
    },
    {
        "match": "Please create it.",
        "replies": [
            {"content": "The assistant greeted first, so this one never comes."},
            {"tool_calls": [{"name": "get_users", "arguments": {}}]},
            {"tool_calls": [{"name": "create_task", "arguments": {"title": "Meeting"}}]},
            {"content": "It is created."},
        ],
    },
]


@dataclass(frozen=True)
class Bench:
    folder: Path
    url: str

    def command(self, save_to: str, *options: str, provider: str = "openai") -> list[str]:
        model = f"{provider}/h20-tp4-hybrid"
        args = json.dumps({"api_base": f"{self.url}/v1", "api_key": "none"})
        words = ["run", "--agent-llm", model, "--user-llm", model, "--agent-llm-args", args]
        words += ["--user-llm-args", args, "--task-ids", *TASKS, "--num-trials", str(TRIALS)]
        return [sys.executable, "-m", "coresched_tau2", *words, "--save-to", save_to, *options]

    def environment(self, **gate: str) -> dict[str, str]:
        path = [CHECKOUT, CHECKOUT / "adapters", Path(__file__).parent / "modules"]
        mine = {name: value for name, value in os.environ.items() if not name.startswith("CORESCHED_")}
        return {
            **mine,
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "TAU2_DATA_DIR": str(self.folder),
            "TAU2_STANDIN_CALLS": str(self.folder / "calls.jsonl"),
            **gate,
        }

    def run(self, save_to: str, *options: str, provider: str = "openai", **gate: str) -> Any:
        (self.folder / "calls.jsonl").unlink(missing_ok=True)
        command = self.command(save_to, "--max-concurrency", "8", *options, provider=provider)
        return subprocess.run(
            command, env=self.environment(**gate), capture_output=True, text=True, timeout=120, check=False
        )

    def simulations(self, save_to: str) -> list[dict[str, Any]]:
        path = self.folder / "simulations" / save_to / "results.json"
        found: list[dict[str, Any]] = json.loads(path.read_text())["simulations"]
        return found

    def outcome(self, save_to: str) -> list[tuple[Any, ...]]:
        names = ("task_id", "trial", "reward", "steps", "termination_reason")
        return sorted(tuple(one[name] for name in names) for one in self.simulations(save_to))

    def calls(self) -> list[dict[str, float]]:
        return [json.loads(line) for line in (self.folder / "calls.jsonl").read_text().splitlines()]

    def labels(self, before: int = 0) -> Counter[str | None]:
        lines = (self.folder / "requests.jsonl").read_text().splitlines()
        return Counter(json.loads(line)["label"] for line in lines[before:])


@contextmanager
def bench(folder: Path, speed: int = 20) -> Iterator[Bench]:
    script = folder / "script.jsonl"
    script.write_text("\n".join(map(json.dumps, SCRIPT)) + "\n")
    log = str(folder / "requests.jsonl")
    options = ("--script", str(script), "--request-log", log, "--speed", str(speed))
    with running_worker(*options) as (url, _):
        yield Bench(folder, url)


def overlap(calls: list[dict[str, float]]) -> int:
    """How many ran at once, at most."""
    return max(sum(other["start"] <= call["start"] < other["end"] for other in calls) for call in calls)


def test_a_gated_run_has_the_results_of_a_plain_one_under_the_cap(tmp_path: Path) -> None:
    with bench(tmp_path) as there:
        plain = there.run("plain")
        assert "this is plain tau2" in plain.stderr, plain.stderr
        assert overlap(there.calls()) > 1
        assert there.labels() == {None: 2 * TRIALS * 5}
        gated = there.run("gated", "--timeout", "60", **GATE)
        assert gated.returncode == 0, gated.stderr
        labels = there.labels(2 * TRIALS * 5)
        calls = there.calls()
    assert there.outcome("gated") == there.outcome("plain")
    assert {row[2] for row in there.outcome("plain")} == {0.0, 1.0}
    assert overlap(calls) == 1
    assert len(calls) == 2 * TRIALS * 2
    assert labels == {**dict.fromkeys(SAMPLES, 3), **dict.fromkeys([f"{name}/user" for name in SAMPLES], 2)}
    waits = [one["info"]["coresched"] for one in there.simulations("gated")]
    assert sorted(wait["label"] for wait in waits) == sorted(SAMPLES)
    assert max(wait["environment_queue_s"] for wait in waits) > 0.05
    for one, wait in zip(there.simulations("gated"), waits, strict=True):  # the clock runs from the grant
        assert one["timeout_s"] == pytest.approx(60 + wait["environment_queue_s"], abs=1e-5)
    assert "8 samples finished, 0 withdrawn" in gated.stderr
    assert " 24 turns " in gated.stderr
    assert " 32 environment stages " in gated.stderr  # 16 of tools, 16 of users


def test_other_providers_get_their_labels_by_litellm(tmp_path: Path) -> None:
    with bench(tmp_path) as there:
        done = there.run("other", provider="elsewhere", **GATE)
        assert done.returncode == 0, done.stderr
        labels = there.labels()
    assert labels == {**dict.fromkeys(SAMPLES, 3), **dict.fromkeys([f"{name}/user" for name in SAMPLES], 2)}
    assert " 24 turns " in done.stderr


def test_worker_processes_share_the_capacities_of_a_service(tmp_path: Path) -> None:
    with bench(tmp_path) as there, served() as (address, _):
        alone = there.run("alone", "--workers", "2", **GATE)
        assert alone.returncode == 2
        assert "CORESCHED_SERVICE" in alone.stderr
        service = {"CORESCHED_SERVICE": address, "CORESCHED_BATCH": "tau2"}
        done = there.run("shared", "--workers", "2", "--max-concurrency", "4", **GATE, **service)
        assert done.returncode == 0, done.stderr
        calls = there.calls()
        labels = there.labels()
    assert len(there.simulations("shared")) == 2 * TRIALS
    assert overlap(calls) == 1
    assert len(calls) == 2 * TRIALS * 2
    assert None not in labels
    assert len({str(label).split("@")[1].split("/")[0] for label in labels}) == 2
    for log in (tmp_path / "workers").iterdir():
        assert "coresched: C_S=8 C_E=1" in log.read_text()


def test_attempts_that_fail_are_samples_of_their_own(tmp_path: Path) -> None:
    nowhere = Bench(tmp_path, "http://127.0.0.1:9")
    done = nowhere.run("failed", "--max-retries", "1", "--num-trials", "1", **GATE)
    assert done.returncode == 0, done.stderr
    reasons = {one["termination_reason"] for one in nowhere.simulations("failed")}
    assert reasons == {"infrastructure_error: Connection error."}
    assert f"0 samples finished, {2 * len(TASKS)} withdrawn, none finished; 0 turns" in done.stderr


def test_an_interrupt_ends_the_waits_of_all(tmp_path: Path) -> None:
    with bench(tmp_path, speed=2) as there:
        command = there.command("cut", "--max-concurrency", "8")
        environment = there.environment(**{**GATE, "CORESCHED_SAMPLE_CONCURRENCY": "2"})
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
            deadline = time.monotonic() + 60
            while not (tmp_path / "calls.jsonl").exists():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        assert process.returncode != 0
    assert "samples finished" in errors
    assert len([label for label in there.labels() if label and "/user" not in label]) <= 2


def test_an_unknown_tau2_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    there = Bench(tmp_path, "http://127.0.0.1:9")
    program = (
        "import sys, tau2.runner.batch as batch; del batch.build_orchestrator; "
        "from coresched_tau2.command import main; sys.argv[0] = 'tau2'; main()"
    )
    words = there.command("none")[3:]
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env=there.environment(**GATE),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "tau2.runner.batch.build_orchestrator does not exist" in done.stderr
