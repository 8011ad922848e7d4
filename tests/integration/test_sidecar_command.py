"""`coresched sidecar` as a process between a harness of MCP-Atlas's protocol, a worker and a tool server."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from atlas_client import AtlasClient
from served import served
from sidecars import sidecar_process
from simulated_worker import running_worker
from tool_server import tool_server

from coresched.cli.main import main
from coresched.trajectory.importers.run import ImportReport, import_traces

CONCURRENCY = 2  # C_E
TASKS = [f"task-{number:02}" for number in range(8)]


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments}


def script(tasks: list[str], turns: Sequence[list[dict[str, Any]]], named: bool) -> str:
    """Each task makes the same calls, if `named` with its name among their arguments."""
    lines = []
    for task in tasks:
        replies: list[dict[str, Any]] = [
            {
                "content": f"turn {n}",
                "tool_calls": [
                    call(c["name"], **({"task": task} if named else {}), **c["arguments"]) for c in calls
                ],
            }
            for n, calls in enumerate(turns)
        ]
        lines.append(json.dumps({"match": task, "replies": [*replies, {"content": f"{task} is done"}]}))
    return "\n".join(lines)


@dataclass
class Run:
    """What each side saw. Tool calls have the label that the sidecar sent along."""

    harness: AtlasClient
    conversations: dict[str, list[dict[str, Any]]]
    requests: list[dict[str, Any]]
    tools: dict[str, Any]
    status: dict[str, Any]

    @property
    def answers(self) -> dict[str, list[str]]:
        """All that a task was told, without the ids that the worker draws."""
        return {task: [m["content"] for m in said] for task, said in self.conversations.items()}

    def check(self) -> None:
        """What holds of every run with labels: each LLM request and each tool call has its task's."""
        assert {task: said[-1]["content"] for task, said in self.conversations.items()} == {
            task: f"{task} is done" for task in self.conversations
        }
        labels = Counter(request["label"] for request in self.requests)
        turns = {
            task: len([m for m in said if m["role"] == "assistant"])
            for task, said in self.conversations.items()
        }
        assert labels == turns
        assert {call["label"] == call["arguments"]["task"] for call in self.tools["calls"]} == {True}
        assert self.tools["most_trajectories"] <= CONCURRENCY
        assert self.status["counts"]["unmatched"] == 0


@dataclass
class Bench:
    worker: str
    log: Path

    @asynccontextmanager
    async def between(self, *options: str) -> AsyncIterator[tuple[str, str, asyncio.subprocess.Process]]:
        async with AsyncExitStack() as ends:
            tools = await ends.enter_async_context(tool_server())
            given = ("--llm", self.worker, "--tools", tools, "--environment-concurrency", str(CONCURRENCY))
            given += ("--end-after-s", "0.05", *options)
            url, process = await ends.enter_async_context(sidecar_process(*given))
            yield url, tools, process

    async def run(
        self, *options: str, tasks: list[str] = TASKS, sample_concurrency: int | None = None, **harness: Any
    ) -> Run:
        """The harness's run behind a sidecar."""
        self.log.write_text("")
        async with self.between("--sample-concurrency", str(sample_concurrency or len(tasks)), *options) as (
            url,
            tools,
            _,
        ):
            client = AtlasClient(url, url, concurrency=len(tasks), **harness)
            conversations = await client.run(tasks)
            async with aiohttp.ClientSession() as session:
                async with session.get(f"{tools}/record") as response:
                    record = await response.json()
                async with session.get(f"{url}/coresched/status") as response:
                    status = await response.json()
        requests = [json.loads(line) for line in self.log.read_text().splitlines()]
        return Run(client, conversations, requests, record, status)

    async def ungated(self, tasks: list[str] = TASKS, **harness: Any) -> dict[str, list[str]]:
        """What the harness's tasks are told without a sidecar."""
        async with tool_server() as tools:
            said = await AtlasClient(self.worker, tools, concurrency=len(tasks), **harness).run(tasks)
        return {task: [m["content"] for m in messages] for task, messages in said.items()}


@asynccontextmanager
async def bench(
    folder: Path, *turns: list[dict[str, Any]], tasks: list[str] = TASKS, named: bool = True
) -> AsyncIterator[Bench]:
    path, log = folder / "script.jsonl", folder / "requests.jsonl"
    path.write_text(script(tasks, turns, named))
    options = ("--speed", "100", "--served-model-name", "m", "--script", str(path), "--request-log", str(log))
    with running_worker(*options) as (url, _):
        yield Bench(url, log)


@pytest.mark.parametrize(("parallel", "stream"), [(False, False), (True, True)])
async def test_every_call_is_matched_and_no_stage_is_beyond_the_cap(
    tmp_path: Path, parallel: bool, stream: bool
) -> None:
    turns = [[call("work", n=n, ms=20), call("work", n=n, again=1, ms=20)] for n in range(3)]
    async with bench(tmp_path, *turns) as processes:
        run = await processes.run("--record", str(tmp_path / "run"), parallel=parallel, stream=stream)
        run.check()
        assert run.answers == await processes.ungated(parallel=parallel, stream=stream)
    assert run.status["counts"]["matched"] == 6 * len(TASKS)
    assert run.tools["most_calls"] <= (2 * CONCURRENCY if parallel else CONCURRENCY)
    assert run.tools["most_trajectories"] == CONCURRENCY
    for shown in run.status["trajectories"]:
        assert (shown["turns"], shown["stages"], shown["calls"]) == (4, 3, 6)
    assert run.status["counts"]["ambiguous"] == 0
    if not stream:  # a stream has no usage unless its client asks for it
        recorded(run, tmp_path / "run", stages_s=[0.04] * 3)


def recorded(run: Run, folder: Path, stages_s: Sequence[float]) -> None:
    """The recording has the turns that the worker saw, and stages that last as long as their calls."""
    trajectories = {one.id: one for one in import_traces([folder], ImportReport())}
    assert trajectories.keys() == run.conversations.keys()
    for label, trajectory in trajectories.items():
        asked = [request for request in run.requests if request["label"] == label]
        assert [turn.output_tokens for turn in trajectory.turns] == [one["output_tokens"] for one in asked]
        assert trajectory.initial_prompt_tokens == asked[0]["prompt_tokens"]
        held = [turn.env.duration_s for turn in trajectory.turns if turn.env is not None]
        assert len(held) == len(stages_s)
        assert all(s >= least for s, least in zip(held, stages_s, strict=True)), held


async def test_retried_timed_out_failed_changed_and_abandoned_calls_keep_their_trajectory(
    tmp_path: Path,
) -> None:
    turns = [
        [call("flaky", n=0), call("work", n=0)],
        [call("stuck", n=1, ms=5)],
        [call("forgotten", n=2), call("work", n=2)],
        [call("museum", n=3, returnImage=True)],
    ]
    harness = {"tool_timeout_s": 0.8, "tool_tries": 3, "abandons": ["forgotten"]}
    async with bench(tmp_path, *turns) as processes:
        run = await processes.run(**harness)
        run.check()
        assert run.answers == await processes.ungated(**harness)
    counts = run.status["counts"]
    assert run.harness.timed_out == len(TASKS)  # of the stuck tool alone
    assert counts["again"] == 2 * len(TASKS)
    assert counts["near"] == counts["abandoned_calls"] == len(TASKS)


async def test_the_same_call_of_every_task_is_made_once_for_each(tmp_path: Path) -> None:
    async with bench(tmp_path, [call("work", ms=10)], named=False) as processes:
        run = await processes.run()
    assert Counter(call["label"] for call in run.tools["calls"]) == dict.fromkeys(TASKS, 1)
    assert run.tools["most_calls"] <= CONCURRENCY
    assert run.status["counts"]["unmatched"] == 0


async def test_a_wait_for_a_slot_is_no_tool_time_unless_calls_are_held(tmp_path: Path) -> None:
    """A quarter of a tool timeout of 4 s and of waits of 10 s; the tools themselves take 0.1 s."""
    tasks = [f"task-{number:02}" for number in range(24)]
    async with bench(
        tmp_path, [call("work", n=0, ms=100), call("work", n=1, ms=100)], tasks=tasks
    ) as processes:
        run = await processes.run(tasks=tasks, tool_timeout_s=1.0)
        run.check()
        held = await processes.run("--hold", "call", tasks=tasks, tool_timeout_s=1.0)
        held.check()
    assert max(shown["environment_queue_s"] for shown in run.status["trajectories"]) > 1
    assert run.harness.timed_out == 0
    assert held.harness.timed_out > 0


async def test_decoupled_limits_finish_sooner_with_the_same_answers(
    tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    turns = [[call("work", n=n, ms=40)] for n in range(3)]
    async with bench(tmp_path, *turns) as processes:
        runs = {
            name: await processes.run("--environment-policy", policy, sample_concurrency=admitted)
            for name, admitted, policy in (
                ("unified", CONCURRENCY, "fcfs"),
                ("decoupled", len(TASKS), "fcfs"),
                ("decoupled, CAAS", len(TASKS), "caas"),
            )
        }
    for name, run in runs.items():
        run.check()
        record_property(f"makespan_s of {name}", run.harness.makespan_s)
        assert run.answers == runs["unified"].answers
    waits = [shown["admission_wait_s"] for shown in runs["unified"].status["trajectories"]]
    assert sum(wait > 0.01 for wait in waits) >= len(TASKS) - CONCURRENCY


async def test_several_workers_keep_each_trajectory_on_its_own(tmp_path: Path) -> None:
    async with bench(tmp_path, *[[call("work", n=n, ms=1)] for n in range(3)]) as first:
        script_path = str(tmp_path / "script.jsonl")
        second_log = tmp_path / "second.jsonl"
        options = ("--served-model-name", "m", "--script", script_path, "--request-log", str(second_log))
        with running_worker("--speed", "100", *options) as (second, _):
            async with (
                tool_server() as tools,
                sidecar_process(
                    *(f"--worker={first.worker}", f"--worker={second}", "--tools", tools),
                    *("--sample-concurrency", "8", "--load-bound", "8"),
                ) as (url, _),
            ):
                conversations = await AtlasClient(url, url, concurrency=8).run(TASKS)
        logs = [
            {json.loads(line)["label"] for line in log.read_text().splitlines()}
            for log in (first.log, second_log)
        ]
    assert {said[-1]["content"] for said in conversations.values()} == {f"{task} is done" for task in TASKS}
    assert logs[0] | logs[1] == set(TASKS)
    assert not logs[0] & logs[1]


async def test_sidecars_share_the_batch_of_a_service(tmp_path: Path) -> None:
    half = len(TASKS) // 2
    async with AsyncExitStack() as ends:
        processes = await ends.enter_async_context(
            bench(tmp_path, [call("work", ms=50)], [call("work", ms=40)])
        )
        service, _ = ends.enter_context(served())
        tools = await ends.enter_async_context(tool_server())
        given = ("--llm", processes.worker, "--tools", tools, "--service", service, "--batch", "b")
        given += ("--sample-concurrency", "8", "--environment-concurrency", "1", "--end-after-s", "0.05")
        urls = [(await ends.enter_async_context(sidecar_process(*given)))[0] for _ in range(2)]
        said = await asyncio.gather(
            *(
                AtlasClient(url, url, concurrency=half).run(tasks)
                for url, tasks in zip(urls, (TASKS[:half], TASKS[half:]), strict=True)
            )
        )
        async with aiohttp.ClientSession() as session, session.get(f"{tools}/record") as response:
            record = await response.json()
    assert all(m[-1]["content"] == f"{task} is done" for one in said for task, m in one.items())
    assert (len(record["calls"]), record["most_calls"]) == (2 * len(TASKS), 1)


async def test_a_signal_lets_open_requests_end_and_metrics_are_served(tmp_path: Path) -> None:
    async with (
        bench(tmp_path, [call("work", ms=600)]) as processes,
        processes.between("--sample-concurrency", "2", "--metrics", "127.0.0.1:0") as (url, _, process),
        aiohttp.ClientSession() as session,
    ):
        assert process.stdout is not None
        metrics = (await process.stdout.readline()).decode().split()[-1]
        body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": TASKS[0]}]}
        headers = {"Authorization": f"Bearer {TASKS[0]}"}
        async with session.post(f"{url}/v1/chat/completions", json=body, headers=headers) as response:
            function = (await response.json())["choices"][0]["message"]["tool_calls"][0]["function"]
        async with session.get(metrics) as response:
            text = await response.text()
        body = {"tool_name": function["name"], "tool_args": json.loads(function["arguments"])}
        open_call = asyncio.ensure_future(session.post(f"{url}/call-tool", json=body))
        calls = 0
        while not calls:
            async with session.get(f"{url}/coresched/status") as response:
                calls = (await response.json())["trajectories"][0]["calls"]
        process.send_signal(signal.SIGTERM)
        assert (await open_call).status == 200
        assert await asyncio.wait_for(process.wait(), 20) == 0
    assert 'coresched_sidecar_events_total{kind="held_replies"} 1.0' in text
    assert 'coresched_sidecar_trajectories{state="environment"} 1.0' in text


GOOD = ["--llm", "http://h:1", "--tools", "http://h:2", "--sample-concurrency", "3"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tools", "http://h:2", "--sample-concurrency", "3"], "--llm must be given"),
        (["--llm", "http://h:1", "--sample-concurrency", "3"], "--tools must be given"),
        (["--llm", "http://h:1", "--tools", "http://h:2"], "--sample-concurrency must be given"),
        ([*GOOD, "--worker", "http://h:3"], "--llm and --worker are given both"),
        ([*GOOD, "--llm", "h:1"], "--llm must be a base URL"),
        ([*GOOD, "--tools", "http://"], "--tools must be a base URL"),
        ([*GOOD, "--tool-path", "/v1/call"], "--tool-path must be a path"),
        (
            [*GOOD, "--router", "sticky-bounded"],
            "--router sticky-bounded chooses among several --worker; leave",
        ),
        ([*GOOD, "--load-bound", "2"], "--load-bound 2.0 chooses among several --worker; leave it out with"),
        ([*GOOD, "--tool-path", "call"], "--tool-path must be a path"),
        ([*GOOD, "--service", "127.0.0.1:1"], "--service needs --batch"),
        ([*GOOD, "--batch", "b"], "--batch needs --service"),
        ([*GOOD, "--service", "nowhere", "--batch", "b"], "--service must be HOST:PORT"),
        ([*GOOD, "--api-key", "a b"], "--api-key must be printable ASCII"),
        ([*GOOD, "--hold", "both"], "--hold"),
        ([*GOOD, "--stage-idle-s", "0"], "--stage-idle-s"),
        ([*GOOD, "--listen", "nowhere"], "--listen must be"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["sidecar", *arguments])
    except SystemExit as stop:
        code = stop.code  # type: ignore[assignment]
    error = capsys.readouterr().err
    assert code == 2
    assert re.match(rf"coresched sidecar: (argument )?{re.escape(said)}", error), error
    assert error.count("\n") == 1
