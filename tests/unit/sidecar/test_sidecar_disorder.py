"""A harness that times out, leaves, retries, forgets and ends things at random: every slot comes back."""

import asyncio
import logging
import random
from typing import Any

import pytest
from aiohttp import web
from sidecar_ends import Ends, ends, leave, until

from coresched.sidecar.terms import Terms

TERMS = Terms(queue_deadline_s=0.2, stage_idle_s=0.05, idle_s=0.1, end_after_s=0.02)
TOOLS = ("a", "b")


async def agent(bench: Ends, label: str, dice: random.Random) -> None:
    """A task in which everything happens that a harness may do, in no order."""
    for turn in range(6):
        calls = [(dice.choice(TOOLS), {"n": dice.randint(0, 1)}) for _ in range(dice.randint(0, 3))]
        reply = bench.ask(label, *calls, stream=False)
        if dice.random() < 0.15:
            await asyncio.sleep(dice.random() * 0.05)
            await leave(reply)
            continue
        try:
            await reply
        except AssertionError:  # it was ended while it waited
            continue
        requests: list[asyncio.Task[Any]] = []
        for name, arguments in calls:
            for _ in range(dice.choice([0, 1, 1, 1, 2])):
                requests.append(bench.call(name, arguments))
                if dice.random() < 0.2:
                    await asyncio.sleep(dice.random() * 0.03)
                    await leave(requests.pop())
        if dice.random() < 0.7:
            await asyncio.gather(*requests)
        if dice.random() < 0.1:
            await bench.session.delete(f"{bench.url}/coresched/trajectories/{label}")
        if dice.random() < 0.1:
            await asyncio.sleep(0.15)
        bench.statuses += [503] * (turn % 2)


@pytest.mark.parametrize("hold", ["reply", "call"])
@pytest.mark.parametrize("seed", range(5))
async def test_every_slot_comes_back(seed: int, hold: str, caplog: pytest.LogCaptureFixture) -> None:
    dice = random.Random(seed)
    async with ends(sample_concurrency=3, environment_concurrency=2, terms=TERMS, hold=hold) as bench:
        answer = bench.tools.respond
        assert answer is not None

        async def slowly(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
            await asyncio.sleep(dice.random() * 0.02)
            return await answer(request, body)

        bench.tools.respond = slowly
        await asyncio.gather(*(agent(bench, f"task-{n}", random.Random(f"{seed} {n}")) for n in range(8)))
        trajectories = bench.sidecar.trajectories
        await until(lambda: not any(trajectories.present(f"task-{n}") for n in range(8)))
        summary = trajectories.batch.progress
        assert summary is not None
        assert summary.admitted == summary.waiting == 0
        assert summary.environment_running == summary.environment_queued == 0
        assert not list(trajectories.pending.outstanding())
        for turn in range(2):  # and those that come find all there is
            await asyncio.gather(*(bench.ask(f"new-{n}", ("a", {"of": n, "turn": turn})) for n in range(2)))
            calls = [bench.call("a", {"of": n, "turn": turn}) for n in range(2)]
            assert set(await asyncio.gather(*calls)) <= {200, 503}
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []
