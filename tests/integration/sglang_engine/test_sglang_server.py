"""One SGLang server on the simulated device, under routing-prefix and of a plan's flags: all that it shows.

It takes most of a minute to boot, so what needs a server is in this file, which one process runs in order.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from integration.sglang_engine.engine_client import Answer, Client, check, eventually
from integration.sglang_engine.servers import SPEED, EngineServer
from openai import OpenAI
from process_table import descendants, gone
from simulated import trajectory

from coresched.capacity.footprint import footprint
from coresched.capacity.observed import observe_engine, observe_log
from coresched.capacity.plan import Plan
from coresched.cli.main import main
from coresched.lab.replay.conduct import conduct
from coresched.lab.replay.endpoint import Endpoint
from coresched.lab.replay.events import Inference, read_events
from coresched.lab.replay.plan import ReplaySettings, make_plan
from coresched.lab.replay.prompts import TokenSource
from coresched.lab.replay.record import EVENTS

pytestmark = pytest.mark.sglang

LABELS = 10_000


# What it reports, and what our commands make of that.


def test_the_pools_are_those_of_the_plan(server: EngineServer, planned: Plan) -> None:
    pools = planned.pools
    for found in (observe_engine(server.url), observe_log(server.log)):
        assert found.state_slots == pools.state_slots
        assert found.kv_tokens == pools.kv_tokens
        assert found.max_running_requests == pools.max_running_requests
        assert found.page_size == pools.block_tokens
    assert server.line == (
        f"coresched sglang-sim: listening on {server.url}: {pools.kv_tokens:,} KV tokens, "
        f"{pools.state_slots:,} state slots, {pools.max_running_requests} running requests at most\n"
    )


def test_the_doctor_finds_nothing_off(
    server: EngineServer, config: Path, planned: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--concurrency", str(planned.concurrency), "--timeout-s", "60", "--json"]
    assert main(["doctor", "--engine", server.url, "--model", str(config), *asked]) == 0
    told = json.loads(capsys.readouterr().out)
    statuses = {finding["topic"]: finding["status"] for finding in told["findings"]}
    assert statuses["pools"] == statuses["concurrency"] == "ok"
    assert told["version"] == "0.5.23"


def test_a_plan_has_the_memory_of_the_servers_pools(
    server: EngineServer, config: Path, planned: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = ("--turns", "4", "--prompt", "300", "--output", "16", "--response", "60", "--samples", "20")
    assert main(["plan", str(config), "--from-engine", server.url, *workload, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    size, slots = footprint(config, "sglang"), planned.pools.state_slots
    assert slots is not None
    assert again["pool_bytes"] == planned.pools.kv_tokens * size.kv_bytes + (slots + 1) * size.state_bytes
    used = (again["pools"]["state_slots"] + 1) * size.state_bytes
    assert again["pools"]["kv_tokens"] == (again["pool_bytes"] - used) // size.kv_bytes


# Its replies.


async def test_a_reply_has_the_length_asked_for_and_is_the_requests_own(client: Client) -> None:
    prompt = client.prompt(300)
    answers = [await client.generate(prompt, 40) for _ in range(2)]
    for answer in answers:
        check(answer, 300, 40)
    assert answers[0][1]["output_ids"] != answers[1][1]["output_ids"]


async def test_the_next_turn_reuses_the_turn_before(client: Client) -> None:
    prompt = [int(byte) for byte in uuid.uuid4().bytes] * 200
    _, first = answer = await client.generate(prompt, 8, routing_key="turns")
    assert check(answer, 3200, 8)["cached_tokens"] == 0
    follow = [*prompt, *first["output_ids"], *client.prompt(700)]
    meta = check(await client.generate(follow, 1, routing_key="turns"), 3908, 1)
    # A hybrid model resumes at a state that was saved, in a prefill every 64 tokens.
    assert meta["cached_tokens"] == 3200 // 64 * 64


def test_a_chat_goes_on_and_streams(server: EngineServer) -> None:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as api:
        messages: list[Any] = [{"role": "user", "content": f"{uuid.uuid4()} " * 40}]
        first = api.chat.completions.create(model="m", messages=messages)
        assert first.choices[0].finish_reason == "stop"
        assert first.usage is not None
        assert 32 <= first.usage.completion_tokens <= 287
        content = first.choices[0].message.content
        messages += [{"role": "assistant", "content": content}, {"role": "user", "content": "and then?"}]
        second = api.chat.completions.create(model="m", messages=messages, max_tokens=4)
        assert second.usage is not None
        assert second.usage.prompt_tokens_details is not None
        # 64 tokens before the end of the first prompt, or further: its end is not on the grid of states.
        assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens - 64
        parts = list(api.chat.completions.create(model="m", messages=messages, max_tokens=12, stream=True))
        text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
        assert len(text) == 12  # a byte is a token


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"return_logprob": True}, "no log probabilities"),
        ({"sampling_params": {"json_schema": "{}"}}, "leave json_schema"),
        ({"input_ids": [-5]}, "input_ids has -5, which is no token"),
        ({"input_ids": [1, 10**9]}, "input_ids has 1000000000"),
        ({"input_ids": [[1, 2], [3, 2**62]]}, "input_ids has 4611686018427387904"),
        ({"sampling_params": {"beam_width": 2}}, "leave beam_width"),
        ({"input_ids": [-5], "sampling_params": {"n": 2}}, "input_ids has -5"),
        ({"input_ids": None, "text": ""}, "the prompt has no tokens"),
    ],
)
async def test_what_cannot_be_answered_is_refused(client: Client, fields: dict[str, Any], words: str) -> None:
    status, body = await client.generate(**fields)
    assert status == 400
    assert words in json.dumps(body)
    check(await client.generate(8, 2), 8, 2)  # and the server lives


BATCH = [
    trajectory(f"t{n}", [(70, 0.5, 90), (40, 0.2, 300), (30, None, 0)], prompt=600 + 64 * n) for n in range(4)
]


@pytest.mark.parametrize("protocol", [None, "openai"])
async def test_a_replay_is_exact_and_later_turns_find_earlier_ones(
    server: EngineServer, tmp_path: Path, protocol: Literal["openai"] | None
) -> None:
    done = await conduct(
        make_plan(BATCH),
        ReplaySettings(sample_concurrency=2, environment_concurrency=1, speed=SPEED),
        [Endpoint("w", server.url)],
        tokens=TokenSource(0, 1000, 30000),
        folder=tmp_path / "replay",
        traces=[],
        protocol=protocol,
        flush_cache=True,
    )
    assert (done.ending.reason, done.metrics.completed_samples, done.metrics.failed_requests) == (None, 4, 0)
    turns = [event for event in read_events(tmp_path / "replay" / EVENTS) if isinstance(event, Inference)]
    assert len(turns) == 12
    recorded = {one.id: one for one in BATCH}
    for event in turns:
        one = recorded[event.sample]
        assert event.prompt_tokens == one.prompt_tokens()[event.turn]
        assert event.output_tokens == one.turns[event.turn].output_tokens
        assert event.cached_tokens is not None
        assert (event.cached_tokens > 0) == (event.turn > 0)
        if protocol is None:
            assert event.first_token_s is not None
            assert event.first_token_s > 0


# The policy: how labels come, and what /metrics says of it.

LONGEST_LABEL = 512
UNUSUAL = ("tab\t", "line\nbreak", "\x00", " ", "\N{GRINNING FACE}", "x" * LONGEST_LABEL)
TOO_LONG = ("x" * (LONGEST_LABEL + 1), "x" * 1_000_000)


async def counted(client: Client, send: Callable[[], Awaitable[object]]) -> dict[str, float]:
    """What ``send`` adds to the counters of admissions and of refused labels; only what changed."""
    before = await client.counters()
    await send()
    after = await client.counters()
    names = ("hit", "miss", "none", "refused_labels")
    return {name: after[name] - before[name] for name in names if after[name] != before[name]}


@pytest.mark.parametrize(
    ("labels", "added"),
    [
        (UNUSUAL, {"miss": 6}),
        (UNUSUAL, {"hit": 6}),
        (TOO_LONG, {"none": 2, "refused_labels": 2}),
        ((None, ""), {"none": 2}),
    ],
)
async def test_labels_in_bodies(client: Client, labels: tuple[str | None], added: dict[str, float]) -> None:
    async def send() -> None:
        for label in labels:
            check(await client.generate(20, 2, routing_key=label), 20, 2)

    assert await counted(client, send) == added


@pytest.mark.parametrize("label", [5, True, ["a"], {"a": 1}])
async def test_labels_of_another_type_are_refused_by_name(client: Client, label: object) -> None:
    status, body = await client.generate(20, 2, routing_key=label)
    assert status == 400
    assert "routing_key" in body["message"]


@pytest.mark.parametrize(
    ("headers", "added"),
    [
        ({"x-smg-routing-key": "of a chat"}, {"miss": 1}),
        ({"X-SMG-Routing-Key": "of a chat"}, {"hit": 1}),
        ({"x-smg-routing-key": "h" * 1_000_000}, {"none": 1, "refused_labels": 1}),
        ({"x-smg-routing-key": ""}, {"none": 1}),
        ({}, {"none": 1}),
    ],
)
async def test_labels_in_headers(client: Client, headers: dict[str, str], added: dict[str, float]) -> None:
    async def send() -> None:
        status, body = await client.chat(headers)
        assert status == 200, body
        assert body["usage"]["completion_tokens"] == 3

    assert await counted(client, send) == added


def batch(client: Client, prefix: str, output: int, requests: int) -> list[asyncio.Task[Answer]]:
    return [
        asyncio.create_task(
            client.generate(64, output, rid=f"{prefix}-{number:02}-", routing_key=f"{prefix}-{number}")
        )
        for number in range(requests)
    ]


async def test_what_is_warm_goes_first_and_is_counted(client: Client, many: int) -> None:
    prompt = client.prompt(640)
    check(await client.generate(prompt, 2, routing_key="warm"), 640, 2)
    before = await client.counters()
    cold = [asyncio.create_task(client.generate(64, 300)) for _ in range(many)]
    await eventually(client.some_wait)
    check(await client.generate([*prompt, 1, 2, 3], 1, routing_key="warm"), 643, 1)
    assert sum(not task.done() for task in cold) >= many // 4  # and they came before it
    for answer in await asyncio.gather(*cold):
        check(answer, 64, 300)
    after = await client.counters()
    added = {name: after[name] - before[name] for name in before}
    assert (added["hit"], added["miss"], added["none"]) == (1, 0, many)
    assert added["order_changes"] >= 1
    assert added["passes"] >= 2
    assert added["queries"] >= 1
    assert added["seconds"] > 0


async def test_ten_thousand_labels(client: Client, many: int) -> None:
    numbers = iter(range(LABELS))

    async def one_after_another() -> None:
        for number in numbers:
            check(await client.generate(4, 1, routing_key=f"label-{number}"), 4, 1)

    async def send() -> None:
        await asyncio.gather(*(one_after_another() for _ in range(2 * many)))

    assert await counted(client, send) == {"miss": LABELS}


# What clients and operators do to servers on a bad day.


async def test_clients_that_leave_take_their_requests_with_them(client: Client, many: int) -> None:
    before = await client.metric("sglang:num_aborted_requests_total")
    leaving = batch(client, "leaving", 4_000, many)
    await eventually(client.some_wait)
    for task in leaving:
        task.cancel()
    await asyncio.gather(*leaving, return_exceptions=True)
    staying = await asyncio.gather(*batch(client, "staying", 5, many))
    for answer in staying:
        check(answer, 64, 5)

    async def all_aborted() -> bool:
        return await client.metric("sglang:num_aborted_requests_total") == before + len(leaving)

    await eventually(all_aborted)


async def test_aborted_requests_end_and_the_others_do_not(client: Client, many: int) -> None:
    tasks = batch(client, "abort", 300, many)
    await eventually(client.some_wait)
    aborted = {0, 5, many - 1}  # the first run, the last waits
    for number in aborted:
        assert (await client.post("/abort_request", {"rid": f"abort-{number:02}-"}))[0] == 200
    for number, answer in enumerate(await asyncio.gather(*tasks)):
        if number not in aborted:
            check(answer, 64, 300)
            continue
        _, body = answer
        assert body["meta_info"]["finish_reason"]["type"] == "abort", (number, answer)
        assert body["meta_info"]["completion_tokens"] < 300


async def test_all_can_be_aborted(client: Client, many: int) -> None:
    tasks = batch(client, "all", 4_000, many)
    await eventually(client.some_wait)
    assert (await client.post("/abort_request", {"rid": "", "abort_all": True}))[0] == 200
    for _, body in await asyncio.gather(*tasks):
        assert body["meta_info"]["finish_reason"]["type"] == "abort"


async def test_the_cache_is_flushed_when_idle_and_only_then(client: Client, many: int) -> None:
    prompt = client.prompt(1_000)
    check(await client.generate(prompt, 2, routing_key="flush"), 1_000, 2)
    _, again = await client.generate(prompt, 2, routing_key="flush")
    assert again["meta_info"]["cached_tokens"] > 0
    tasks = batch(client, "busy", 300, many)
    await eventually(client.some_wait)
    assert (await client.post("/flush_cache"))[0] == 400
    for answer in await asyncio.gather(*tasks):
        check(answer, 64, 300)
    await eventually(client.idle)
    assert (await client.post("/flush_cache"))[0] == 200
    _, cold = await client.generate(prompt, 2, routing_key="flush")
    assert cold["meta_info"]["cached_tokens"] == 0


async def test_requests_retracted_for_memory_are_answered_in_full(client: Client, planned: Plan) -> None:
    before = await client.metric("sglang:num_retracted_requests_total")
    running = planned.pools.max_running_requests
    assert running * 1_400 > planned.pools.kv_tokens
    requests = (client.generate(200, 1_200, routing_key=f"large-{n % 10}") for n in range(running))
    for answer in await asyncio.gather(*requests):
        check(answer, 200, 1_200)
    assert await client.metric("sglang:num_retracted_requests_total") > before


async def test_a_command_that_is_killed_leaves_no_process(server: EngineServer) -> None:
    """The last test: nothing answers after it."""
    processes = descendants(server.process.pid)
    assert len(processes) >= 3, "the server, its scheduler, its detokenizer"
    server.process.kill()

    async def all_gone() -> bool:
        return all(map(gone, processes))

    try:
        await eventually(all_gone)
    finally:
        for process in processes:
            if not gone(process):
                os.kill(process, signal.SIGKILL)
