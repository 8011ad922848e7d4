"""A replay against engines that answer, fail, lie or hang."""

import asyncio
import os
import signal
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from model_workers import refusing
from replay_engine import Engine, engines
from simulated import trajectory

from coresched.errors import InputError
from coresched.lab.replay.conduct import Conducted, conduct
from coresched.lab.replay.endpoint import Endpoint
from coresched.lab.replay.events import EnvironmentStage, FailedInference, Inference, read_events
from coresched.lab.replay.plan import ReplaySettings, make_plan
from coresched.lab.replay.prompts import TokenSource
from coresched.lab.replay.record import EVENTS
from coresched.trajectory.schema import Trajectory

BATCH = [trajectory(f"t{n}", [(4, 0.02, 3), (2, 0.01, 5), (3, None, 0)], prompt=20 + n) for n in range(6)]
"""Three turns each."""


def endpoints(running: Sequence[Engine]) -> list[Endpoint]:
    return [Endpoint(engine.name, engine.url) for engine in running]


async def replay(
    at: Sequence[Endpoint],
    folder: Path,
    batch: Sequence[Trajectory] = BATCH,
    *,
    options: dict[str, Any] | None = None,
    **settings: Any,
) -> Conducted:
    chosen = {"sample_concurrency": 4, "environment_concurrency": 2, "patience_s": 5.0} | settings
    return await conduct(
        make_plan(batch),
        ReplaySettings(**chosen),
        at,
        tokens=TokenSource(0, 1000, 2000),
        folder=folder,
        traces=[],
        **(options or {}),
    )


def failures(folder: Path) -> list[FailedInference]:
    return [event for event in read_events(folder / EVENTS) if isinstance(event, FailedInference)]


def check_conversations(running: Sequence[Engine]) -> None:
    """Each prompt holds the one before it and the reply that counted, of whichever engine."""
    replies = {key: reply for engine in running for key, reply in engine.replies.items()}
    by_turn = {(ask.label, len(ask.prompt)): ask.prompt for engine in running for ask in engine.asked}
    for recorded in BATCH:
        prompts = [by_turn[recorded.id, length] for length in recorded.prompt_tokens()]
        for number, (before, after) in enumerate(pairwise(prompts)):
            output = recorded.turns[number].output_tokens
            assert after[: len(before)] == before
            assert after[len(before) : len(before) + output] == replies[recorded.id, len(before)]


@pytest.mark.parametrize("protocol", ["sglang", "openai"])
async def test_every_turn_is_sent_as_recorded(tmp_path: Path, protocol: str) -> None:
    async with engines(2) as running:
        done = await replay(endpoints(running), tmp_path / "r", options={"protocol": protocol})
        check_conversations(running)
    assert (done.ending.status, done.metrics.completed_samples, done.metrics.turns) == ("completed", 6, 18)
    asked = [ask for engine in running for ask in engine.asked]
    assert sorted((ask.label, len(ask.prompt), ask.output_tokens) for ask in asked) == sorted(
        (one.id, tokens, turn.output_tokens)
        for one in BATCH
        for tokens, turn in zip(one.prompt_tokens(), one.turns, strict=True)
    )
    assert {ask.path for ask in asked} == {"/generate" if protocol == "sglang" else "/v1/completions"}
    assert done.metrics.cache_reuse == 18 / done.metrics.input_tokens
    stages = [event for event in read_events(tmp_path / "r" / EVENTS) if isinstance(event, EnvironmentStage)]
    assert len(stages) == 12
    assert all(stage.ended_s - stage.started_s >= stage.duration_s for stage in stages)


async def test_two_replays_send_the_same(tmp_path: Path) -> None:
    async with engines(1) as (first,), engines(1) as (second,):
        await replay([Endpoint("w", first.url)], tmp_path / "a")
        await replay([Endpoint("w", second.url)], tmp_path / "b")

    def opening(engine: Engine) -> dict[str, list[int]]:
        return {ask.label: ask.prompt for ask in engine.asked if len(ask.prompt) < 26}

    assert opening(first) == opening(second)
    assert len(opening(first)) == 6


async def test_a_server_of_vllms_kind_is_asked_as_openai(tmp_path: Path) -> None:
    async with engines(1, owned_by="vllm") as (engine,):
        await replay(endpoints([engine]), tmp_path / "r")
        assert {ask.path for ask in engine.asked} == {"/v1/completions"}
        assert engine.asked[0].body["model"] == "m"


async def test_limits_hold(tmp_path: Path) -> None:
    async with engines(1) as (engine,):
        await replay(endpoints([engine]), tmp_path / "r", sample_concurrency=2, environment_concurrency=1)
    assert engine.most_in_flight <= 2
    stages = sorted(
        (event.started_s, event.ended_s)
        for event in read_events(tmp_path / "r" / EVENTS)
        if isinstance(event, EnvironmentStage)
    )
    assert all(end <= start for (_, end), (start, _) in pairwise(stages))


async def test_round_robin_goes_round(tmp_path: Path) -> None:
    async with engines(3) as running:
        done = await replay(endpoints(running), tmp_path / "r", router="round-robin")
    assert done.metrics.turns_by_worker == {"e0": 6, "e1": 6, "e2": 6}


async def test_consistent_hash_stays_at_home(tmp_path: Path) -> None:
    async with engines(3) as running:
        done = await replay(endpoints(running), tmp_path / "r", router="consistent-hash")
    assert done.metrics.migrations == 0


async def test_a_failed_request_is_sent_again_and_counts_once(tmp_path: Path) -> None:
    async with engines(2) as running:
        running[0].faults.extend([503, "drop", 500])
        running[1].faults.extend(["drop", 429])
        done = await replay(endpoints(running), tmp_path / "r")
        check_conversations(running)
    assert (done.ending.status, done.metrics.turns, done.metrics.failed_requests) == ("completed", 18, 5)
    reasons = sorted(failure.reason for failure in failures(tmp_path / "r"))
    assert reasons == [
        "answered 429: no, 429",
        "answered 500: no, 500",
        "answered 503: no, 503",
        *["closed the connection before it answered"] * 2,
    ]
    turns = [event for event in read_events(tmp_path / "r" / EVENTS) if isinstance(event, Inference)]
    assert len({(turn.sample, turn.turn) for turn in turns}) == len(turns) == 18


@pytest.mark.parametrize("router", ["lbch", "round-robin"])
async def test_a_dead_endpoint_is_left_to_the_others(tmp_path: Path, router: str) -> None:
    async with engines(2) as running:
        with refusing() as dead:
            at = [*endpoints(running), Endpoint("dead", dead)]
            with pytest.raises(InputError, match=r"cannot be connected to \(Connection refused\); start it"):
                await replay(at, tmp_path / "r", router=router)
            assert not (tmp_path / "r").exists()
        at = endpoints(running)
        running[1].faults.extend([503] * 1000)  # from now on
        done = await replay(at, tmp_path / "r", router=router)
        check_conversations(running)
    assert (done.ending.status, done.metrics.turns_by_worker) == ("completed", {"e0": 18, "e1": 0})
    assert done.metrics.failed_requests >= 2


async def test_patience_ends(tmp_path: Path) -> None:
    async with engines(1) as (engine,):
        engine.faults.extend([503] * 1000)
        done = await replay(endpoints([engine]), tmp_path / "r", patience_s=0.2)
    assert done.ending.status == "failed"
    assert done.ending.reason is not None
    assert "turns[0]: endpoint http://127.0.0.1:" in done.ending.reason
    assert done.ending.reason.endswith("answered 503: no, 503 (tried for 0.2 s)")
    assert (done.metrics.turns, done.metrics.makespan_s) == (0, None)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (400, "answered 400: no, 400"),
        ({"prompt_tokens": 19}, "counted 19 prompt tokens where"),
        ({"prompt_tokens": "x"}, "no answer of /generate"),
    ],
)
async def test_what_will_not_pass_ends_the_replay_at_once(tmp_path: Path, fault: Any, reason: str) -> None:
    async with engines(1) as (engine,):
        engine.faults.append(fault)
        done = await replay(endpoints([engine]), tmp_path / "r")
    assert done.ending.status == "failed"
    assert reason in (done.ending.reason or "")


async def test_a_reply_of_another_length_ends_the_replay(tmp_path: Path) -> None:
    async with engines(1) as (engine,):
        engine.faults.append({"choices": [{"token_ids": [1]}]})
        done = await replay(endpoints([engine]), tmp_path / "r", options={"protocol": "openai"})
    assert "generated 1 tokens where 4 were asked for; it must honour ignore_eos" in (
        done.ending.reason or ""
    )


async def test_a_request_that_hangs_has_failed_in_the_end(tmp_path: Path) -> None:
    async with engines(1, hold=True) as (engine,):
        done = await replay(endpoints([engine]), tmp_path / "r", request_timeout_s=0.2, patience_s=0.3)
    assert done.ending.status == "failed"
    assert "did not answer within 0.2 s (--request-timeout-s)" in (done.ending.reason or "")


async def test_a_signal_keeps_what_there_is(tmp_path: Path) -> None:
    async with engines(1) as (engine,):
        engine.faults.extend([{}] * 7)

        async def interrupt() -> None:
            while len(engine.asked) < 7:
                engine.arrived.clear()
                await engine.arrived.wait()
            engine.hold = True
            os.kill(os.getpid(), signal.SIGINT)

        interrupting = asyncio.create_task(interrupt())
        done = await replay(endpoints([engine]), tmp_path / "r")
        await interrupting
    assert (done.ending.status, done.metrics.makespan_s) == ("interrupted", None)
    assert 0 < done.metrics.turns < 18
    turns = [event for event in read_events(tmp_path / "r" / EVENTS) if isinstance(event, Inference)]
    assert len(turns) == done.metrics.turns


async def test_caches_are_flushed_before_anything_is_sent(tmp_path: Path) -> None:
    async with engines(2) as running:
        await replay(endpoints(running), tmp_path / "r", options={"flush_cache": True})
        assert [engine.flushed for engine in running] == [1, 1]


async def test_a_warm_up_comes_first_and_is_in_no_event(tmp_path: Path) -> None:
    async with engines(2) as running:
        running[0].faults.append(503)
        done = await replay(endpoints(running), tmp_path / "r", options={"warm_up": 3, "flush_cache": True})
        asked = [engine.asked for engine in running]
    assert [len(one.prompt) for one in asked[0][:4]] == [64] * 4  # one of them again
    assert [len(one.prompt) for one in asked[1][:3]] == [64] * 3
    first = [one for of_engine in asked for one in of_engine if len(one.prompt) == 64]
    assert {(one.label, one.body["routing_key"]) for one in first} == {("", None)}
    assert len({tuple(one.prompt) for one in first}) == 6
    others = [one.prompt for of_engine in asked for one in of_engine if len(one.prompt) != 64]
    assert not {tuple(one.prompt[:5]) for one in first} & {tuple(prompt[:5]) for prompt in others}
    assert [engine.flushed for engine in running] == [2, 2]
    assert (done.metrics.turns, done.metrics.failed_requests) == (18, 0)


async def test_a_warm_up_that_fails_ends_the_replay(tmp_path: Path) -> None:
    async with engines(1) as (engine,):
        engine.faults.append(400)
        done = await replay(endpoints([engine]), tmp_path / "r", options={"warm_up": 2})
    assert done.ending.status == "failed"
    assert "warm-up request 1 of 2: endpoint http://127.0.0.1:" in (done.ending.reason or "")
    assert done.metrics.turns == 0


async def test_a_signal_ends_the_warm_up(tmp_path: Path) -> None:
    async with engines(1, hold=True) as (engine,):

        async def interrupt() -> None:
            await engine.arrived.wait()
            os.kill(os.getpid(), signal.SIGINT)

        interrupting = asyncio.create_task(interrupt())
        done = await replay(endpoints([engine]), tmp_path / "r", options={"warm_up": 2})
        await interrupting
    assert (done.ending.status, done.metrics.turns) == ("interrupted", 0)


async def test_a_request_that_took_too_long_is_sent_elsewhere_at_once(tmp_path: Path) -> None:
    async with engines(2) as running:
        running[0].hold = True
        done = await replay(endpoints(running), tmp_path / "r", request_timeout_s=0.3, patience_s=60.0)
    assert done.ending.status == "completed"
    late = {(failure.sample, failure.turn) for failure in failures(tmp_path / "r")}
    assert late
    assert len(late) == len(failures(tmp_path / "r"))  # never twice to the one that hangs


@pytest.mark.parametrize("owned_by", ["sglang", "vllm"])
async def test_engines_learn_no_label_where_they_shall_not(owned_by: str, tmp_path: Path) -> None:
    async with engines(2, owned_by=owned_by) as running:
        done = await replay(endpoints(running), tmp_path / "r", labelled=False, router="round-robin")
        asked = [ask for engine in running for ask in engine.asked]
    assert done.ending.status == "completed"
    assert len(asked) == done.metrics.turns
    assert {ask.label for ask in asked} == {""}
    assert {ask.body.get("routing_key") for ask in asked} == {None}


@pytest.mark.parametrize(
    ("resets", "said"),
    [(True, None), (False, 'answered 200: {"success": false}; restart'), (None, "VLLM_SERVER_DEV_MODE=1")],
)
async def test_vllm_is_asked_in_its_own_way_and_may_refuse(
    resets: bool | None, said: str | None, tmp_path: Path
) -> None:
    async with engines(2, owned_by="vllm", resets=resets) as running:
        work = replay(endpoints(running), tmp_path / "r", options={"flush_cache": True})
        if said is None:
            await work
            assert [engine.flushed for engine in running] == [1, 1]
        else:
            with pytest.raises(InputError, match=said):
                await work
            assert not any(engine.asked for engine in running)


async def test_a_context_that_is_too_long_is_refused_before(tmp_path: Path) -> None:
    async with engines(2, longest_context=30) as running:
        with pytest.raises(
            InputError, match=r"trajectory 't0': turns\[2\] needs a context of 37 tokens, but"
        ):
            await replay(endpoints(running), tmp_path / "r")
        assert not any(engine.asked for engine in running)
    assert not (tmp_path / "r").exists()


async def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    async with engines(1) as running:
        with pytest.raises(InputError, match="is not empty; choose another name"):
            await replay(endpoints(running), tmp_path)
        with pytest.raises(InputError, match=r"there is no directory '.*/no'; create it first"):
            await replay(endpoints(running), tmp_path / "no" / "where")
        assert not running[0].asked
