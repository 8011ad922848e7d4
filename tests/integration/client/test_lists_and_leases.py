"""Lists of samples, leases and random failures, the same embedded and at a service: asyncio."""

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest
from batches import Batches

from coresched import LeaseExpiredError


async def test_submitted_samples_are_admitted_in_order_until_all_have_ended(batches: Batches) -> None:
    seen, running, most = [], 0, 0

    async def run(sample: Any) -> None:
        nonlocal running, most
        async with sample:
            running += 1
            most = max(most, running)
            async with sample.inference():
                await asyncio.sleep(0)
            running -= 1

    async with batches.make(sample_concurrency=3) as batch:
        names = [f"s{n}" for n in range(20)]
        await batch.submit(names)
        await batch.submit(["s3", "s20"])
        async with batch.sample("s7"):  # one may still be asked for by name
            pass
        tasks = []
        async for sample in batch.admissions():
            seen.append(sample.id)
            tasks.append(asyncio.ensure_future(run(sample)))
        await asyncio.gather(*tasks)
    assert seen == [name for name in [*names, "s20"] if name != "s7"]
    assert most <= 3
    assert batch.report().totals.finished == 21


async def test_a_slot_held_beyond_its_lease_goes_to_the_next(batches: Batches) -> None:
    async with batches.make(sample_concurrency=2, environment_concurrency=1) as batch:

        async def overrun() -> None:
            # The second stage has its slot once that of the first has returned by itself.
            async with slow.environment(max_s=0.2), quick.environment():
                pass

        async with batch.sample("slow") as slow, batch.sample("quick") as quick:
            with pytest.raises(LeaseExpiredError, match=r"max_s of 0\.2 s"):
                await overrun()
            async with slow.environment(max_s=60):
                pass
        totals = (await batch.refresh()).totals
        assert (totals.finished, totals.environment_stages) == (2, 2)
        with pytest.raises(ValueError, match="max_s must be above 0"):
            slow.environment(max_s=0)


async def test_random_failures_and_cancellations_keep_the_limits_and_leak_nothing(batches: Batches) -> None:
    rng = random.Random(5)
    inside = {"sample": 0, "environment": 0, "resident": 0}

    async def enter(kind: str, most: int) -> None:
        inside[kind] += 1
        assert inside[kind] <= most
        try:
            await asyncio.sleep(rng.random() / 200)
            if rng.random() < 0.1:
                raise OSError
        finally:
            inside[kind] -= 1

    async def run(name: str) -> None:
        async with batch.sample(name) as sample:
            await enter("sample", 4)
            for _ in range(rng.randint(0, 2)):
                with suppress(OSError):
                    async with sample.resident():
                        await enter("resident", 3)
                        await stages(sample)

    async def stages(sample: Any) -> None:
        for _ in range(rng.randint(0, 2)):
            with suppress(OSError):
                async with sample.inference():
                    if rng.random() < 0.1:
                        raise OSError
            with suppress(OSError):
                async with sample.environment():
                    await enter("environment", 2)

    async with batches.make(sample_concurrency=4, environment_concurrency=2, resident_concurrency=3) as batch:
        tasks = [asyncio.ensure_future(run(f"s{n}")) for n in range(60)]
        for _ in range(20):
            await asyncio.sleep(0.005)
            rng.choice(tasks).cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert outcome is None or isinstance(outcome, (asyncio.CancelledError, OSError))

        async def all_ended() -> None:
            # One that was cancelled twice left before the service knew, which it does a little later.
            while True:
                totals = (await batch.refresh()).totals
                if totals.finished + totals.withdrawn == totals.samples:
                    break
                await asyncio.sleep(0.01)
            held = totals.admitted + totals.environment_queued + totals.environment_running
            held += totals.resident_queued + totals.resident
            assert (totals.waiting, held) == (0, 0)

        await asyncio.wait_for(all_ended(), 10)
        totals = batch.report().totals
    assert batch.report().totals == totals
