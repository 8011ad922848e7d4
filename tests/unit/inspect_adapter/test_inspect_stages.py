"""The slot of a sample in inspect's ways: parallel calls, models inside tools, agents beside each other."""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext

import anyio
import pytest
from coresched_inspect.stages import Execution, Stages, call_in_scope, model_call

from coresched.client.gate import Gate, Turn
from coresched.recording.usage import Usage

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def run(backend: str, body: Callable[[Gate], Awaitable[None]], slots: int = 1) -> Gate:
    async def bounded() -> None:
        with anyio.fail_after(30):
            await body(gate)

    with Gate(sample_concurrency=10, environment_concurrency=slots) as gate:
        anyio.run(bounded, backend=backend)
    return gate


@BACKENDS
def test_calls_of_one_message_are_one_stage(backend: str) -> None:
    async def body(gate: Gate) -> None:
        async with gate.sample("a") as sample:
            stages = Stages(sample, nullcontext)
            execution = Execution(stages)

            async def call() -> None:
                async with execution.call():
                    assert gate.progress is not None
                    assert gate.progress.environment_running == 1
                    await anyio.sleep(0)

            async with execution.work(), anyio.create_task_group() as group:
                group.start_soon(call)
                group.start_soon(call)
            assert stages.count == 1

    totals = run(backend, body).report().totals
    assert (totals.environment_stages, totals.environment_running, totals.finished) == (1, 0, 1)


@BACKENDS
def test_a_tool_that_waits_for_a_model_leaves_its_slot_to_others(backend: str) -> None:
    async def body(gate: Gate) -> None:
        answered = anyio.Event()

        async def asks() -> None:
            async with gate.sample("asks") as sample:
                stages = Stages(sample, nullcontext)
                execution = Execution(stages)
                async with execution.work(), execution.call(), model_call(call_in_scope()):
                    turn = await stages.begin_turn()
                    assert turn is not None  # a turn like any other, for no stage is open
                    await answered.wait()
                    await stages.end_turn(turn)
                assert stages.count == 2

        async def works() -> None:
            async with gate.sample("works") as sample, Stages(sample, nullcontext).work():
                answered.set()

        async with anyio.create_task_group() as group:
            group.start_soon(asks)
            await anyio.sleep(0.05)
            group.start_soon(works)

    samples = run(backend, body).report().samples
    assert (samples["asks"].turns, samples["asks"].environment_stages) == (1, 2)


@BACKENDS
def test_a_model_call_beside_a_tool_that_works_is_no_turn_and_keeps_the_slot(backend: str) -> None:
    async def body(gate: Gate) -> None:
        async with gate.sample("a") as sample:
            stages = Stages(sample, nullcontext)
            execution = Execution(stages)
            asked = anyio.Event()

            async def asks() -> None:
                async with execution.call(), model_call(call_in_scope()):
                    assert await stages.begin_turn() is None
                    asked.set()

            async def works() -> None:
                async with execution.call():
                    await asked.wait()

            async with execution.work(), anyio.create_task_group() as group:
                group.start_soon(works)
                group.start_soon(asks)
            assert stages.count == 1

    assert run(backend, body).report().totals.turns == 0


@BACKENDS
def test_the_slot_goes_to_others_when_the_last_working_call_ends(backend: str) -> None:
    async def body(gate: Gate) -> None:
        answered, asked = anyio.Event(), anyio.Event()
        async with gate.sample("a") as first, gate.sample("b") as second:
            ours, theirs = Stages(first, nullcontext), Stages(second, nullcontext)
            execution = Execution(ours)

            async def asks() -> None:
                async with execution.call(), model_call(call_in_scope()):
                    asked.set()
                    await answered.wait()

            async def works() -> None:
                async with execution.call():
                    await asked.wait()

            async def other() -> None:
                await asked.wait()
                async with theirs.work():
                    answered.set()

            async with anyio.create_task_group() as group:
                group.start_soon(other)
                async with execution.work(), anyio.create_task_group() as calls:
                    calls.start_soon(works)
                    calls.start_soon(asks)

    run(backend, body)


@BACKENDS
def test_a_stage_ends_the_turn_of_an_agent_beside_it(backend: str) -> None:
    async def body(gate: Gate) -> None:
        async with gate.sample("a") as sample:
            stages = Stages(sample, nullcontext)
            turn = await stages.begin_turn()
            assert await stages.begin_turn() is None
            async with stages.work():
                await stages.end_turn(turn, ValueError)  # too late to fail
            assert await stages.begin_turn() is not None
            await stages.close()

    totals = run(backend, body).report().totals
    assert (totals.turns, totals.failed_inference_s) == (2, 0)


def test_the_usage_of_a_turn_is_told_while_it_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    monkeypatch.setattr(Turn, "usage", lambda turn, **counts: told.append(counts))
    usage = Usage(prompt_tokens=7, output_tokens=2)

    async def body(gate: Gate) -> None:
        async with gate.sample("a") as sample:
            stages = Stages(sample, nullcontext)
            await stages.end_turn(await stages.begin_turn(), usage=usage)
            overtaken = await stages.begin_turn()
            async with stages.work():
                await stages.end_turn(overtaken, usage=usage)

    run("asyncio", body)
    assert told == [{"prompt_tokens": 7, "cached_tokens": None, "output_tokens": 2}]


@BACKENDS
def test_a_wait_that_is_cancelled_leaves_nothing_behind(backend: str) -> None:
    async def body(gate: Gate) -> None:
        async with gate.sample("a") as first, gate.sample("b") as second:
            ours, theirs = Stages(first, nullcontext), Stages(second, nullcontext)
            async with theirs.work():
                with anyio.move_on_after(0.05) as scope:
                    await ours.begin_work()
                assert scope.cancelled_caught
                assert await ours.begin_turn() is not None  # the sample is in no stage
                await ours.close()
            async with ours.work():
                pass

    assert run(backend, body).report().samples["a"].environment_stages == 1


@BACKENDS
def test_who_comes_while_the_sample_queues_shares_its_slot(backend: str) -> None:
    async def body(gate: Gate) -> None:
        async with gate.sample("a") as first, gate.sample("b") as second:
            ours, theirs = Stages(first, nullcontext), Stages(second, nullcontext)
            in_work = 0

            async def agent() -> None:
                nonlocal in_work
                async with ours.work():
                    in_work += 1
                    while in_work < 2:
                        await anyio.sleep(0.01)

            async with anyio.create_task_group() as group, theirs.work():
                group.start_soon(agent)
                group.start_soon(agent)
                await anyio.sleep(0.05)
                assert in_work == 0
            assert ours.count == 1

    run(backend, body)
