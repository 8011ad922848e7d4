"""`coresched replay` with real processes: simulated workers, a gateway, a service, and their ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from process_table import descendants, wait_until_gone
from served import served
from simulated import free_scheduling
from simulated_worker import CHECKOUT, running_worker
from simulated_worker import metrics as worker_metrics

from coresched.lab.simulator.model import load_worker_model
from coresched.lab.simulator.run import simulate
from coresched.lab.simulator.settings import RunSettings
from coresched.trajectory.generator import generate
from coresched.trajectory.schema import Trajectory, Turn
from coresched.trajectory.writer import write_trajectories

SPEED = 200
NAMES = ("worker-0", "worker-1")  # those of the simulator


def batch() -> list[Trajectory]:
    """Eight generated trajectories of at most ten turns; some drop the reasoning of their replies."""
    shortened = []
    for number, one in enumerate(generate("swe", 8, seed=11)):
        turns = list(one.turns[:10])
        if number % 3 == 0:
            turns[1] = Turn(turns[1].output_tokens, turns[1].output_tokens // 2, None, turns[1].env)
        shortened.append(msgspec.structs.replace(one, turns=tuple(turns)))
    return shortened


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "traces.jsonl"
    write_trajectories(path, batch())
    return path


Workers = list[tuple[str, subprocess.Popen[str]]]


@pytest.fixture(scope="module")
def running() -> Iterator[Workers]:
    with ExitStack() as stack:
        yield [stack.enter_context(running_worker("--speed", str(SPEED))) for _ in NAMES]


@pytest.fixture
def workers(running: Workers) -> Workers:
    """Workers with empty caches, once what an earlier test left there is gone."""
    deadline = time.monotonic() + 60
    for url, _ in running:
        while httpx.post(f"{url}/flush_cache").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    return running


def command(trace: Path, urls: list[str], folder: Path, *options: str) -> list[str]:
    endpoints = [f"--endpoint={name}={url}" for name, url in zip(NAMES, urls, strict=False)]
    limits = ["--sample-concurrency", "4", "--environment-concurrency", "2", "--speed", str(SPEED)]
    return [
        *(sys.executable, "-m", "coresched", "replay", str(trace), "--output", str(folder)),
        *(*endpoints, *limits, *options),
    ]


def replay(*arguments: Any) -> dict[str, Any]:
    """The summary of a replay that reaches its end."""
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=300, cwd=CHECKOUT)
    assert (done.returncode, done.stderr) == (0, "")
    return summary_of(arguments[2])


def summary_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def events_of(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = (folder / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


@pytest.mark.parametrize("protocol", ["sglang", "openai"])
def test_tokens_are_those_of_the_trace_and_reuse_that_of_the_simulator(
    trace: Path, tmp_path: Path, workers: list[tuple[str, Any]], protocol: str
) -> None:
    urls = [url for url, _ in workers]
    options = ("--router", "consistent-hash", "--protocol", protocol)
    metrics = replay(trace, urls, tmp_path / "r", *options)["metrics"]
    sent = {(turn["sample"], turn["turn"]): turn for turn in events_of(tmp_path / "r", "inference")}
    for one in batch():
        for number, (tokens, turn) in enumerate(zip(one.prompt_tokens(), one.turns, strict=True)):
            event = sent[one.id, number]
            assert (event["prompt_tokens"], event["output_tokens"]) == (tokens, turn.output_tokens)
    assert len(sent) == sum(len(one.turns) for one in batch())
    settings = RunSettings(
        name="simulated",
        workers=2,
        sample_concurrency=4,
        environment_concurrency=2,
        state_ratio=0.9,
        label_capacity=4,
        routing="consistent-hash",
        environment_policy="caas",
    )
    simulated = simulate(batch(), settings, free_scheduling(load_worker_model())).metrics
    # Memory for all, and every trajectory at home: what is computed anew does not hang on the timing.
    assert metrics["new_prefill_tokens"] == simulated.new_prefill_tokens
    assert metrics["input_tokens"] == simulated.input_tokens
    assert metrics["output_imbalance"] == pytest.approx(simulated.output_imbalance)
    for stage in events_of(tmp_path / "r", "environment"):
        assert stage["ended_s"] - stage["started_s"] >= stage["duration_s"]


def test_a_service_admits_and_routes(trace: Path, tmp_path: Path, workers: list[tuple[str, Any]]) -> None:
    urls = [url for url, _ in workers]
    with served("--worker", NAMES[0], "--worker", NAMES[1]) as (address, _):
        metrics = replay(trace, urls, tmp_path / "r", "--service", address)["metrics"]
        assert metrics["completed_samples"] == 8
        assert all(metrics["turns_by_worker"].values())
        wrong = command(trace, urls[:1], tmp_path / "w", "--service", address)
        done = subprocess.run(wrong, capture_output=True, text=True, timeout=60, cwd=CHECKOUT)
        assert done.returncode == 2
        assert (
            "routes to the workers worker-0, worker-1, but --endpoint names worker-0; start it" in done.stderr
        )
        round_robin = command(trace, urls, tmp_path / "w", "--service", address, "--router", "round-robin")
        done = subprocess.run(round_robin, capture_output=True, text=True, timeout=60, cwd=CHECKOUT)
        assert done.returncode == 2
        assert "start it without --worker" in done.stderr
    done = subprocess.run(wrong, capture_output=True, text=True, timeout=60, cwd=CHECKOUT)
    assert done.returncode == 2
    assert f"--service {address} does not answer" in done.stderr
    assert not (tmp_path / "w").exists()


def test_a_gateway_is_one_endpoint_and_tells_its_workers(
    trace: Path, tmp_path: Path, workers: list[tuple[str, Any]]
) -> None:
    urls = [url for url, _ in workers]
    gateway = [sys.executable, "-m", "coresched", "gateway", "--listen", "127.0.0.1:0"]
    gateway += [f"--worker={url}" for url in urls]
    with subprocess.Popen(gateway, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        metrics = replay(trace, [f"http://{address}"], tmp_path / "r")["metrics"]
        process.terminate()
    assert set(metrics["turns_by_worker"]) == set(urls)
    assert metrics["request_imbalance"] > 0


def test_a_gateway_of_its_own_routes_by_label_under_the_names_of_the_endpoints(
    trace: Path, tmp_path: Path, workers: list[tuple[str, Any]]
) -> None:
    urls = [url for url, _ in workers]
    metrics = replay(trace, urls, tmp_path / "r", "--router", "gateway", "--load-bound", "2")["metrics"]
    assert set(metrics["turns_by_worker"]) == set(NAMES)
    assert all(metrics["turns_by_worker"].values())
    assert metrics["cache_reuse"] > 0.5  # which it would not be without labels at two workers
    configuration = json.loads((tmp_path / "r" / "run.json").read_text())
    assert configuration["settings"]["router"] == "gateway"
    assert [one["url"] for one in configuration["endpoints"]] == urls
    assert (tmp_path / "r" / "gateway.log").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_its_gateway_ends_with_it(
    trace: Path, tmp_path: Path, workers: list[tuple[str, Any]], number: int
) -> None:
    arguments = command(trace, [url for url, _ in workers], tmp_path / "r", "--router", "gateway")
    with subprocess.Popen(
        arguments, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as running:
        wait_for_turns(tmp_path / "r", 5)
        below = descendants(running.pid)
        assert below
        running.send_signal(number)
        assert running.wait(60) == (130 if number == signal.SIGINT else -number)
        wait_until_gone(below)


def test_a_gateway_that_is_gone_ends_the_replay(
    trace: Path, tmp_path: Path, workers: list[tuple[str, Any]]
) -> None:
    arguments = command(trace, [url for url, _ in workers], tmp_path / "r", "--router", "gateway")
    with subprocess.Popen(
        arguments, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as running:
        wait_for_turns(tmp_path / "r", 5)
        (gateway,) = descendants(running.pid)
        os.kill(gateway, signal.SIGKILL)
        _, err = running.communicate(timeout=60)
    assert running.returncode == 1
    assert "the gateway ended with exit code -9; " in err


def test_runs_after_a_flush_reuse_the_same_and_a_warm_up_is_no_part_of_them(
    trace: Path, tmp_path: Path, workers: list[tuple[str, Any]]
) -> None:
    urls = [url for url, _ in workers]
    options = ("--router", "consistent-hash", "--repeat", "2", "--flush-cache", "--warm-up", "3", "--json")
    arguments = command(trace, urls, tmp_path / "r", *options)
    answered = sum(worker_metrics(url)["requests_total"] for url in urls)
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=300, cwd=CHECKOUT)
    assert (done.returncode, done.stderr) == (0, "")
    (only,) = json.loads(done.stdout)["configurations"]
    prefill = only["metrics"]["new_prefill_tokens"]
    assert (prefill["low"], prefill["runs"]) == (prefill["high"], 2)
    runs = [events_of(tmp_path / "r" / f"run-{n}", "inference") for n in (1, 2)]
    turns = sum(len(one.turns) for one in batch())
    assert [len(events) for events in runs] == [turns, turns]
    # The workers counted the warm-up: three requests to each before each run.
    answered = sum(worker_metrics(url)["requests_total"] for url in urls) - answered
    assert answered == 2 * turns + 2 * 2 * 3


def test_a_worker_that_is_killed_is_done_without(
    trace: Path, tmp_path: Path, workers: list[tuple[str, Any]]
) -> None:
    with running_worker("--speed", str(SPEED)) as (url, process):
        arguments = command(trace, [url, workers[1][0]], tmp_path / "r")
        with subprocess.Popen(arguments, cwd=CHECKOUT) as running:
            wait_for_turns(tmp_path / "r", 10)
            process.kill()
            assert running.wait(300) == 0
    summary = summary_of(tmp_path / "r")
    assert (summary["status"], summary["metrics"]["completed_samples"]) == ("completed", 8)
    turns = events_of(tmp_path / "r", "inference")
    assert len({(turn["sample"], turn["turn"]) for turn in turns}) == len(turns)
    reasons = {failure["reason"] for failure in events_of(tmp_path / "r", "failed-inference")}
    assert reasons
    assert all("connect" in reason or "broke off" in reason for reason in reasons)


def test_ctrl_c_leaves_a_valid_part(trace: Path, tmp_path: Path, workers: list[tuple[str, Any]]) -> None:
    urls = [url for url, _ in workers]
    arguments = command(trace, urls, tmp_path / "r")
    with subprocess.Popen(
        arguments, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        wait_for_turns(tmp_path / "r", 10)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert err == "coresched replay: stopped by a signal; what was measured by then is kept\n"
    assert "did not reach its end" in out
    summary = summary_of(tmp_path / "r")
    assert (summary["status"], summary["metrics"]["makespan_s"]) == ("interrupted", None)
    assert 10 <= summary["metrics"]["turns"] == len(events_of(tmp_path / "r", "inference"))
    page = tmp_path / "page.html"
    drawing = [sys.executable, "-m", "coresched", "report", str(tmp_path / "r"), "--report", str(page)]
    done = subprocess.run(drawing, cwd=CHECKOUT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "r did not reach its end (interrupted: stopped by a signal)" in page.read_text()


def wait_for_turns(folder: Path, turns: int) -> None:
    deadline = time.monotonic() + 60
    while not (folder / "events.jsonl").exists() or len(events_of(folder, "inference")) < turns:
        assert time.monotonic() < deadline
        time.sleep(0.02)
