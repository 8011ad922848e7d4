"""Batches that are recorded as they run, on simulated workers with real tools; imported, drawn, replayed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.types import CompletionUsage
from recorded_harness import MODEL, Truth, check_trace, routed_client, run_sample
from served import CHECKOUT, served
from simulated_worker import running_worker

import coresched
import coresched.httpx
import coresched.sync
from coresched.cli.main import main
from coresched.trajectory.reader import load_trajectories
from coresched.trajectory.schema import Trajectory

TOOL_S = 0.15
NAMES = [f"task-{number}" for number in range(5)]


def test_a_gateway_with_a_folder_that_cannot_be_refuses_to_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "no" / "where"
    assert main(["gateway", "--worker", "http://127.0.0.1:9", "--record", str(folder)]) == 2
    assert "--record" in (said := capsys.readouterr().err)
    assert "create it first" in said


@pytest.fixture(scope="module")
def workers() -> Iterator[list[str]]:
    with running_worker("--speed", "20") as (first, _), running_worker("--speed", "20") as (second, _):
        yield [first, second]


@contextmanager
def gateway(workers: list[str], record: Path) -> Iterator[str]:
    """The URL of a recording `coresched gateway`, which is stopped in the end, and ends well."""
    command = [sys.executable, "-m", "coresched", "gateway", "--listen", "127.0.0.1:0"]
    command += [f"--worker={url}" for url in workers] + ["--record", str(record)]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            yield f"http://{process.stdout.readline().split()[-1]}"
        finally:
            process.terminate()
            assert process.wait(20) == 0


def imported(folder: Path, code: int = 0) -> dict[str, Trajectory]:
    """What `coresched trace import` makes of the folder."""
    output = folder.parent / f"{folder.name}.jsonl"
    assert main(["trace", "import", str(folder), "--output", str(output)]) == code
    return {one.id: one for one in load_trajectories(output)}


def run_batch(clients: list[str], folder: Path) -> dict[str, Truth]:
    """Five samples that share one environment slot, recorded by the batch and the transport."""

    async def run() -> dict[str, Truth]:
        async with routed_client(clients, record=folder) as client:
            limits = {"sample_concurrency": 5, "environment_concurrency": 1}
            async with coresched.Batch(**limits, record=folder) as batch:
                runs = [run_sample(batch, client, name, tool_s=TOOL_S) for name in NAMES]
                return dict(zip(NAMES, await asyncio.gather(*runs), strict=True))

    return asyncio.run(run())


def test_a_gated_batch_is_imported_drawn_and_replayed(
    workers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truths = run_batch(workers, tmp_path / "run")
    assert max(wait for truth in truths.values() for wait in truth.queue_s) > 2 * TOOL_S
    found = imported(tmp_path / "run")
    check_trace(found, truths)
    for trajectory in found.values():
        assert trajectory.meta["inference"].startswith("exact: from sending the request")
        assert trajectory.meta["env_duration"].startswith("exact: from the grant")

    monkeypatch.chdir(tmp_path)
    assert main(["report", "run", "--report", "run.html", "--perfetto", "run.json"]) == 0
    page = (tmp_path / "run.html").read_text()
    for drawn in (
        "Recorded run of 5 trajectories, 15 turns",
        "Cache reuse by turn",
        "Trajectories over time",
    ):
        assert drawn in page
    replay = ["replay", "run.jsonl", "--endpoint", workers[0], "--endpoint", workers[1], "--speed", "20"]
    limits = ["--sample-concurrency", "5", "--environment-concurrency", "1", "--output", "replayed"]
    assert main([*replay, *limits]) == 0
    replayed = imported(tmp_path / "replayed")
    assert replayed.keys() == found.keys()
    for name, trajectory in found.items():
        assert replayed[name].prompt_tokens() == trajectory.prompt_tokens()


def test_a_turn_that_block_transport_and_gateway_record_counts_once(
    workers: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with gateway(workers, folder) as url:
        truths = run_batch([url], folder)
    assert {path.name.split("-")[1] for path in folder.iterdir()} == {"harness", "transport", "gateway"}
    check_trace(imported(folder), truths)
    for path in folder.glob("events-harness-*"):
        path.unlink()  # without it transport and gateway tell the same turns
    for name, trajectory in imported(folder).items():
        assert trajectory.prompt_tokens() == [usage.prompt_tokens for usage in truths[name].usages]
        assert {turn.env.quality for turn in trajectory.turns[:-1] if turn.env is not None} == {"derived"}


def blocking_sample(batch: coresched.sync.Batch, name: str, ask: Callable[..., CompletionUsage]) -> Truth:
    """Two turns with a real process between them, in a thread."""
    truth = Truth()
    with batch.sample(name) as sample:
        for number in range(2):
            with sample.inference() as turn:
                usage = ask(turn, [{"role": "user", "content": f"task {name} " * (8 + 16 * number)}])
                truth.usages.append(usage)
            if number == 0:
                with sample.environment() as stage:
                    began = time.perf_counter()
                    subprocess.run(["sleep", str(TOOL_S)], check=True)
                    truth.stage_s.append(time.perf_counter() - began)
                    truth.queue_s.append(stage.queue_s)
    return truth


def run_threads(workers: list[str], folder: Path, transport: httpx.BaseTransport | None) -> dict[str, Truth]:
    def ask(turn: Any, messages: list[Any]) -> CompletionUsage:
        url = "http://workers" if transport is not None else turn.worker
        reply = client.with_options(base_url=f"{url}/v1").chat.completions.create(
            model=MODEL, messages=messages, max_tokens=7
        )
        assert reply.usage is not None
        if transport is None:  # nobody else could tell
            prompt, output = reply.usage.prompt_tokens, reply.usage.completion_tokens
            turn.usage(prompt_tokens=prompt, output_tokens=output)
        return reply.usage

    with (
        openai.OpenAI(api_key="none", http_client=httpx.Client(transport=transport)) as client,
        coresched.sync.Batch(
            sample_concurrency=3, environment_concurrency=1, workers=workers, record=folder
        ) as batch,
        ThreadPoolExecutor() as pool,
    ):
        truths = list(pool.map(lambda name: blocking_sample(batch, name, ask), NAMES))
    return dict(zip(NAMES, truths, strict=True))


@pytest.mark.parametrize("who", ["transport", "harness"])
def test_threads_record_by_the_transport_or_tell_the_usage_themselves(
    workers: list[str], tmp_path: Path, who: str
) -> None:
    folder = tmp_path / "run"
    transport = coresched.httpx.SyncTransport(workers, record=folder) if who == "transport" else None
    truths = run_threads(workers, folder, transport)
    found = imported(folder)
    check_trace(found, truths)
    expected = "exact: from sending" if who == "transport" else "derived: the turn's block"
    assert all(one.meta["inference"].startswith(expected) for one in found.values())


PROCESS = """
import asyncio, json, sys
import coresched
from recorded_harness import routed_client, run_sample

async def main(target, folder, names, *workers):
    async with routed_client(workers, record=folder) as client:
        options = {"sample_concurrency": 4, "environment_concurrency": 1, "record": folder}
        async with coresched.connect(target, batch="b", **options) as batch:
            runs = [run_sample(batch, client, name, tool_s=0.15) for name in names.split()]
            truths = await asyncio.gather(*runs)
    told = [[[u.model_dump() for u in t.usages], t.stage_s, t.queue_s] for t in truths]
    print(json.dumps(told))

asyncio.run(main(*sys.argv[1:]))
"""


def test_two_processes_of_a_service_record_into_one_folder(workers: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    environment = {**os.environ, "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'tests'}"}
    shares = ["a b", "c d"]
    with served() as (target, _):
        command = [sys.executable, "-c", PROCESS, target, str(folder)]
        running = [
            subprocess.Popen([*command, share, *workers], stdout=subprocess.PIPE, text=True, env=environment)
            for share in shares
        ]
        outputs = [process.communicate(timeout=60)[0] for process in running]
    truths = {}
    for share, output in zip(shares, outputs, strict=True):
        for name, (usages, stage_s, queue_s) in zip(share.split(), json.loads(output), strict=True):
            parsed = [CompletionUsage.model_validate(usage) for usage in usages]
            truths[name] = Truth(parsed, stage_s, queue_s)
    check_trace(imported(folder), truths)


KILLED = """
import asyncio, sys
import coresched
from recorded_harness import routed_client, run_sample

async def main(folder, *workers):
    client = routed_client(workers, record=folder)
    async with coresched.Batch(sample_concurrency=2, environment_concurrency=2, record=folder) as batch:
        await run_sample(batch, client, "done", tool_s=0.01)
        print("done", flush=True)
        await run_sample(batch, client, "cut", tool_s=600, turns=2)

asyncio.run(main(*sys.argv[1:]))
"""


def turns_ended(folder: Path) -> int:
    return sum(path.read_text().count('"turn-end"') for path in folder.glob("events-harness-*"))


def test_what_a_killed_process_had_written_is_imported(workers: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    environment = {**os.environ, "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'tests'}"}
    command = [sys.executable, "-c", KILLED, str(folder), *workers]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        while turns_ended(folder) < 4:
            assert process.poll() is None
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    (file,) = folder.glob("events-harness-*")
    with file.open("a") as more:
        more.write('{"event": "envir')
    found = imported(folder, code=1)
    assert {name: len(trajectory.turns) for name, trajectory in found.items()} == {"done": 3, "cut": 1}
    assert "completed" not in found["done"].meta
    assert found["cut"].meta["completed"] is False
