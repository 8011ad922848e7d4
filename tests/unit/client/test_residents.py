"""Resident slots of an embedded batch: held over turns and stages, asked for between stages only."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from coresched import sync
from coresched.batch.records import TransitionError
from coresched.client.embedded import Batch, Environment, Sample


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def residents(batch: Batch) -> tuple[int, int]:
    """How many wait for a slot and how many hold one."""
    totals = batch.report().totals
    return totals.resident_queued, totals.resident


async def test_a_slot_is_held_over_turns_and_stages_and_its_times_are_reported(clock: Any) -> None:
    async def second() -> None:
        async with batch.sample("second") as sample, sample.resident() as held:
            assert held.queue_s == 20.0
            clock.now += 4.0

    async with Batch(sample_concurrency=2, environment_concurrency=1, resident_concurrency=1) as batch:
        async with batch.sample("first") as sample:
            async with sample.resident() as held:
                waiting = asyncio.ensure_future(second())
                await settle()
                for _ in range(2):
                    async with sample.inference():
                        clock.now += 7.0
                    async with sample.environment():
                        clock.now += 3.0
                assert (held.queue_s, residents(batch)) == (0.0, (1, 1))
                assert batch.report().samples["second"].state == "resident_queued"
                assert batch.report().samples["first"].resident
            async with sample.inference():  # goes on without it
                await waiting
        assert residents(batch) == (0, 0)
    report = batch.report()
    first, other = report.samples["first"], report.samples["second"]
    assert (first.resident_wait_s, first.resident_s, first.environment_s) == (0.0, 20.0, 6.0)
    assert (other.resident_wait_s, other.resident_s, other.environment_queue_s) == (20.0, 4.0, 0.0)
    assert (other.resident_requested_at, other.resident_started_at, other.resident_ended_at) == (0, 20, 24)
    assert (report.totals.resident_wait_s, report.totals.resident_s) == (20.0, 24.0)


async def test_a_deeper_sample_does_not_overtake() -> None:
    order: list[str] = []

    async def live(name: str, turns: int) -> None:
        async with batch.sample(name) as sample:
            for _ in range(turns):
                async with sample.inference():
                    pass
            async with sample.resident():
                order.append(name)
                await settle()

    async with Batch(sample_concurrency=3, resident_concurrency=1) as batch:
        await asyncio.gather(*(live(name, turns) for name, turns in (("a", 0), ("b", 0), ("deep", 5))))
    assert order == ["a", "b", "deep"]


async def test_without_a_cap_nobody_waits() -> None:
    async with Batch(sample_concurrency=9) as batch, AsyncExitStack() as stack:
        for n in range(9):
            sample = await stack.enter_async_context(batch.sample(str(n)))
            await stack.enter_async_context(sample.resident())
        assert residents(batch) == (0, 9)


async def test_a_slot_is_not_to_be_had_within_a_stage_nor_twice() -> None:
    async with Batch(sample_concurrency=1, resident_concurrency=2) as batch, batch.sample("a") as sample:
        for stage, state in (
            (sample.inference(), "inference turn"),
            (sample.environment(), "environment stage"),
        ):
            async with stage:
                with pytest.raises(TransitionError, match=rf"in an {state}.* not allow sample.resident"):
                    await sample.resident().__aenter__()
        async with sample.resident():
            with pytest.raises(TransitionError, match="'a' holds a resident slot already, which does not"):
                await sample.resident().__aenter__()
            assert residents(batch) == (0, 1)


async def test_while_it_waits_no_stage_begins() -> None:
    async with (
        Batch(sample_concurrency=2, resident_concurrency=1) as batch,
        batch.sample("a") as first,
        batch.sample("b") as second,
    ):
        async with first.resident():
            waiting = asyncio.ensure_future(second.resident().__aenter__())
            await settle()
            with pytest.raises(TransitionError, match="queued for a resident slot, which does not allow"):
                await second.inference().__aenter__()
        await waiting
        async with second.inference():
            assert residents(batch) == (0, 1)


async def test_left_with_a_stage_open_it_is_given_back_and_that_is_told() -> None:
    async with Batch(sample_concurrency=1, resident_concurrency=1) as batch, batch.sample("a") as sample:
        held = await sample.resident().__aenter__()
        async with sample.environment():
            with pytest.raises(TransitionError, match=r"the end of sample\.resident"):
                await held.__aexit__(None, None, None)
            assert residents(batch) == (0, 0)
            await held.__aexit__(None, None, None)  # once only
        assert batch.report().samples["a"].environment_stages == 1
        async with sample.resident():
            pass


async def test_an_error_that_leaves_a_stage_behind_gives_the_slot_back() -> None:
    async def leave_behind(sample: Sample, stage: Environment) -> None:
        async with sample.resident():
            await stage.__aenter__()
            raise ZeroDivisionError

    async with Batch(sample_concurrency=1, resident_concurrency=1) as batch, batch.sample("a") as sample:
        stage = sample.environment()
        with pytest.raises(ZeroDivisionError):
            await leave_behind(sample, stage)
        assert residents(batch) == (0, 0)
        await stage.__aexit__(None, None, None)


@pytest.mark.parametrize("error", [None, ZeroDivisionError])
async def test_the_end_of_the_sample_is_the_end_of_its_slot(error: type[Exception] | None) -> None:
    async with Batch(sample_concurrency=1, resident_concurrency=1) as batch:
        sample = await batch.sample("a").__aenter__()
        held = await sample.resident().__aenter__()
        await sample.__aexit__(error, None, None)
        assert residents(batch) == (0, 0)
        await held.__aexit__(None, None, None)
        async with batch.sample("b") as other, other.resident():
            pass
    assert batch.report().samples["a"].state == ("withdrawn" if error else "finished")


async def test_a_wait_given_up_leaves_the_queue_and_the_sample_running(clock: Any) -> None:
    async def live(sample: Sample) -> None:
        async with sample.resident():
            await asyncio.sleep(0)

    async with (
        Batch(sample_concurrency=3, resident_concurrency=1) as batch,
        batch.sample("a") as holder,
        batch.sample("b") as gone,
        batch.sample("c") as behind,
    ):
        async with holder.resident():
            waits = [asyncio.ensure_future(live(sample)) for sample in (gone, behind)]
            await settle()
            clock.now += 2.0
            waits[0].cancel()
            await settle()
            assert residents(batch) == (1, 1)
            assert batch.report().samples["b"].state == "admitted"
        await waits[1]
        await live(gone)
    assert batch.report().samples["b"].resident_wait_s == 2.0


def test_a_blocking_batch_says_the_same() -> None:
    with sync.Batch(sample_concurrency=1, resident_concurrency=1) as batch, batch.sample("a") as sample:
        with sample.inference(), pytest.raises(TransitionError):
            sample.resident().__enter__()
        with sample.resident() as held:
            assert held.queue_s == 0.0
            assert batch.progress.resident == 1
            left = sample.environment()
            left.__enter__()
            with pytest.raises(TransitionError, match=r"the end of sample\.resident"):
                held.__exit__(None, None, None)
            left.__exit__(None, None, None)
        assert batch.progress.resident == 0
