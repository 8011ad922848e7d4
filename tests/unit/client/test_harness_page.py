"""The examples of docs/harness.md, run as they are printed against a small fake model and tool."""

import asyncio
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from model_workers import model_workers
from served import served
from simulated_worker import running_worker

import coresched
import coresched.httpx
from coresched.cli.main import main
from coresched.client.embedded import Batch
from coresched.trajectory.reader import load_trajectories

PAGE = Path(__file__).parents[3] / "docs" / "harness.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@dataclass
class Task:
    id: str
    prompt: str = "prompt"


@dataclass
class Reply:
    label: str
    tool_calls: list[str] = field(default_factory=list)


class Fakes:
    """A model that asks for two calls on each of its first two turns, and tools that count how many run."""

    def __init__(self) -> None:
        self.turns: dict[str, int] = {}
        self.calls = 0

    def llm(self, messages: list[Any], extra_headers: dict[str, str]) -> Reply:
        label = extra_headers["x-smg-routing-key"]
        self.turns[label] = self.turns.get(label, 0) + 1
        return Reply(label, ["ls", "cat"] if self.turns[label] <= 2 else [])

    def call_tool(self, call: str) -> str:
        self.calls += 1
        return call

    async def async_llm(self, messages: list[Any], extra_headers: dict[str, str]) -> Reply:
        await asyncio.sleep(0)
        return self.llm(messages, extra_headers)

    async def async_call_tool(self, call: str) -> str:
        await asyncio.sleep(0)
        return self.call_tool(call)

    def namespace(self, asynchronous: bool) -> dict[str, Any]:
        return {
            "asyncio": asyncio,
            "tasks": [Task(f"t{i}") for i in range(60)],
            "llm": self.async_llm if asynchronous else self.llm,
            "call_tool": self.async_call_tool if asynchronous else self.call_tool,
        }


@pytest.fixture(autouse=True)
def _public_name(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(coresched, "Batch"):
        monkeypatch.setattr(coresched, "Batch", Batch, raising=False)


def test_the_page_has_the_examples_that_are_run_here() -> None:
    assert len(EXAMPLES) == 9


@pytest.mark.parametrize("number", [0, 1], ids=["asyncio", "threads"])
def test_the_whole_harnesses_run_every_task(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    fakes = Fakes()
    namespace = fakes.namespace(asynchronous=number == 0)
    exec(compile(EXAMPLES[number], str(PAGE), "exec"), namespace)
    assert [reply.label for reply in namespace["results"]] == [f"t{i}" for i in range(60)]
    assert set(fakes.turns.values()) == {3}
    assert fakes.calls == 60 * 2 * 2
    if number == 0:
        assert "finished=60" in capsys.readouterr().out


def test_the_gate_is_found_from_where_the_tool_is(capsys: pytest.CaptureFixture[str]) -> None:
    namespace = Fakes().namespace(asynchronous=False)
    exec(compile(EXAMPLES[2], str(PAGE), "exec"), namespace)
    with namespace["gate"]:
        assert namespace["run_task"](Task("a")) == "ls"
    assert capsys.readouterr().out == "waited 0.0 s\n"


def test_the_openai_client_needs_nothing_more_than_the_turn() -> None:
    with model_workers(2) as workers:
        example = EXAMPLES[3]
        for number, worker in enumerate(workers, 1):
            assert f"http://10.0.0.{number}:30000" in example
            example = example.replace(f"http://10.0.0.{number}:30000", worker.url)
        namespace = Fakes().namespace(asynchronous=True)
        exec(compile(example, str(PAGE), "exec"), namespace)
        assert namespace["results"] == ["Hello you"] * 60
        labels = [label for worker in workers for label in worker.labels()]
        assert sorted(labels) == sorted(["judge", *(f"t{i}" for i in range(60))])
        assert all(worker.seen for worker in workers)


def test_the_harness_of_several_processes_runs_every_task(tmp_path: Path) -> None:
    fakes = Fakes()
    namespace = {**fakes.namespace(asynchronous=True), "coresched": coresched}
    with served(listen=f"unix:{tmp_path}/s") as (address, _):
        example = EXAMPLES[4].replace("127.0.0.1:50071", address)
        assert example != EXAMPLES[4]
        exec(compile(example, str(PAGE), "exec"), namespace)
    assert [reply.label for reply in namespace["results"]] == [f"t{i}" for i in range(60)]


async def test_no_more_sandboxes_live_than_there_are_resident_slots() -> None:
    fakes = Fakes()
    living = most = 0

    class Sandbox:
        async def call(self, call: str) -> str:
            return await fakes.async_call_tool(call)

        async def stop(self) -> None:
            nonlocal living
            living -= 1

    async def start_sandbox(task: Task) -> Sandbox:
        nonlocal living, most
        living += 1
        most = max(most, living)
        await asyncio.sleep(0)
        return Sandbox()

    namespace = {**fakes.namespace(asynchronous=True), "start_sandbox": start_sandbox}
    exec(compile(EXAMPLES[5], str(PAGE), "exec"), namespace)
    async with Batch(sample_concurrency=12, environment_concurrency=3, resident_concurrency=5) as batch:
        runs = [namespace["run_in_sandbox"](batch, task) for task in namespace["tasks"]]
        assert len(await asyncio.gather(*runs)) == 60
        totals = batch.report().totals
    assert (living, most) == (0, 5)
    assert (totals.environment_stages, totals.resident) == (60 * 3, 0)
    assert totals.resident_wait_s > 0


def test_the_recorded_batch_is_imported_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with running_worker("--speed", "50") as (url, _):
        namespace = {"asyncio": asyncio, "coresched": coresched, "openai": openai, "httpx": httpx}
        namespace["workers"] = [url]
        exec(compile(EXAMPLES[6].replace('"qwen"', '"h20-tp4-hybrid"'), str(PAGE), "exec"), namespace)
    for command in re.findall(r"^\$ coresched (.* monday .*)$", PAGE.read_text(), re.MULTILINE):
        assert main(command.split()) == 0
    (trajectory,) = load_trajectories(tmp_path / "monday.jsonl")
    assert (trajectory.id, len(trajectory.turns)) == ("task-1", 1)
    assert "Recorded run of 1 trajectories, 1 turns" in (tmp_path / "monday.html").read_text()


async def test_the_tool_timeout_leaves_out_the_queue() -> None:
    namespace = Fakes().namespace(asynchronous=True)
    exec(compile(EXAMPLES[7], str(PAGE), "exec"), namespace)
    async with Batch(sample_concurrency=1, environment_concurrency=1) as batch, batch.sample("a") as sample:
        assert await namespace["one_tool_stage"](sample, "ls") == "ls"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.timeout came with Python 3.11")
async def test_the_task_limit_leaves_out_the_queue() -> None:
    namespace = Fakes().namespace(asynchronous=True)
    exec(compile(EXAMPLES[8], str(PAGE), "exec"), namespace)
    async with Batch(sample_concurrency=2, environment_concurrency=1) as batch:

        async def limited() -> tuple[str, float]:
            async with batch.sample("limited") as sample, asyncio.timeout(0.5) as limit:  # type: ignore[attr-defined]
                deadline = limit.when()
                result = await namespace["stage_under_a_task_limit"](sample, limit, "ls")
                return result, limit.when() - deadline

        async with batch.sample("first") as sample, sample.environment():
            task = asyncio.ensure_future(limited())
            await asyncio.sleep(0.7)  # longer than the limit
        result, extension = await task
    assert result == "ls"
    assert extension == pytest.approx(batch.report().samples["limited"].environment_queue_s)
