"""Resident slots as a harness meets them, embedded and at a service, and shared by several processes."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from batches import Batches
from served import CHECKOUT

import coresched
from coresched import TransitionError


async def until(batch: Any, **counts: int) -> None:
    """The whole batch comes to have so many samples in these states."""

    async def come() -> None:
        while counts != {name: getattr((await batch.refresh()).totals, name) for name in counts}:
            await asyncio.sleep(0.005)

    await asyncio.wait_for(come(), 20)


async def test_a_slot_is_held_over_turns_and_stages_and_reported(batches: Batches) -> None:
    async with batches.make(sample_concurrency=2, environment_concurrency=1, resident_concurrency=1) as batch:
        async with batch.sample("first") as first, batch.sample("second") as second:
            async with first.resident() as held:
                waiting = asyncio.ensure_future(second.resident().__aenter__())
                await until(batch, resident_queued=1, resident=1)
                for _ in range(2):
                    async with first.inference():
                        await asyncio.sleep(0.01)
                    async with first.environment():
                        await asyncio.sleep(0.01)
                assert held.queue_s < 1.0
                report = await batch.refresh()
                states = {name: times.state for name, times in report.samples.items()}
                assert states == {"first": "admitted", "second": "resident_queued"}
                assert report.samples["first"].resident
            block = await waiting
            async with first.inference(), second.inference():
                pass
            await block.__aexit__(None, None, None)
        await until(batch, resident=0)
    report = batch.report()
    one, two = report.samples["first"], report.samples["second"]
    assert one.resident_s >= one.inference_s * 0.9 + one.environment_s
    assert two.resident_wait_s == pytest.approx(block.queue_s)
    assert two.resident_wait_s > 0.03
    assert report.totals.resident_wait_s == pytest.approx(one.resident_wait_s + two.resident_wait_s)
    assert report.totals.resident_s == pytest.approx(one.resident_s + two.resident_s)


async def test_steps_out_of_order_are_refused_in_the_same_words(batches: Batches) -> None:
    async with batches.make(sample_concurrency=2, resident_concurrency=2) as batch:
        async with batch.sample("a") as sample:
            async with sample.environment():
                with pytest.raises(TransitionError) as refused:
                    await sample.resident().__aenter__()
                assert str(refused.value) == (
                    "sample 'a' is in an environment stage, which does not allow sample.resident()"
                )
            held = await sample.resident().__aenter__()
            with pytest.raises(TransitionError, match="'a' holds a resident slot already, which does not"):
                await sample.resident().__aenter__()
            async with sample.inference():
                with pytest.raises(TransitionError) as refused:
                    await held.__aexit__(None, None, None)
                assert str(refused.value) == (
                    "sample 'a' is in an inference turn, which does not allow the end of sample.resident(); "
                    "leave the stage first"
                )
                assert (await batch.refresh()).totals.resident == 0
            async with sample.resident():
                assert (await batch.refresh()).totals.resident == 1
        times = (await batch.refresh()).samples["a"]
        assert (times.state, times.turns, times.environment_stages) == ("finished", 1, 1)


def test_threads_are_told_the_same(batches: Batches) -> None:
    with (
        batches.make_blocking(sample_concurrency=1, resident_concurrency=1) as batch,
        batch.sample("a") as sample,
    ):
        with sample.inference(), pytest.raises(TransitionError, match=r"does not allow sample\.resident"):
            sample.resident().__enter__()
        held = sample.resident().__enter__()
        with sample.environment(), pytest.raises(TransitionError, match="leave the stage first"):
            held.__exit__(None, None, None)
        with sample.resident():
            assert batch.refresh().totals.resident == 1


async def test_the_end_of_the_sample_is_the_end_of_its_slot(batches: Batches) -> None:
    async with batches.make(sample_concurrency=1, resident_concurrency=1) as batch:
        sample = await batch.sample("a").__aenter__()
        held = await sample.resident().__aenter__()
        await sample.__aexit__(None, None, None)
        await held.__aexit__(None, None, None)
        async with batch.sample("b") as other, other.resident():
            pass
    assert batch.report().totals.finished == 2


async def test_a_cancelled_wait_leaves_the_sample_running(batches: Batches) -> None:
    async def live(sample: Any) -> None:
        async with sample.resident():
            await asyncio.Event().wait()

    async with batches.make(sample_concurrency=2, resident_concurrency=1) as batch:
        async with batch.sample("holder") as holder, batch.sample("sample") as sample:
            async with holder.resident():
                for _ in range(5):
                    waiting = asyncio.ensure_future(sample.resident().__aenter__())
                    await until(batch, resident_queued=1)
                    waiting.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await waiting
                    assert (await batch.refresh()).totals.resident_queued == 0
                async with sample.inference():
                    pass
            # Cancelled at once, before or after the grant: the slot is free either way.
            for pauses in range(6):
                living = asyncio.ensure_future(live(sample))
                for _ in range(pauses):
                    await asyncio.sleep(0)
                living.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await living
            async with sample.resident():
                pass
        assert (await batch.refresh()).totals.resident == 0


# Several processes.

LIMITS = {"sample_concurrency": 8, "environment_concurrency": 2, "resident_concurrency": 3}
HARNESS = """
import os, sys, threading
from coresched import sync

def tell(line):  # in one piece, whichever threads tell at once
    os.write(1, line.encode())

def run(sample):
    with sample, sample.resident():
        tell(f"in {sample.id}\\n")
        with sample.inference():
            if sys.argv[2] == "hold":
                threading.Event().wait()
        with sample.environment():
            pass
        tell(f"out {sample.id}\\n")

with sync.connect(sys.argv[1], batch="shared", grace_s=1, **LIMITS) as batch:
    threads = []
    for sample in batch.admissions():
        threads.append(threading.Thread(target=run, args=(sample,), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join()
""".replace("LIMITS", repr(LIMITS))


@contextmanager
def harness(address: str, how: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", HARNESS, address, how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_a_process_that_is_killed_gives_its_slots_to_the_others(service: str) -> None:
    names = [f"s{n}" for n in range(12)]
    async with coresched.connect(service, batch="shared", **LIMITS) as batch:
        await batch.submit(names)
        with harness(service, "hold") as first:
            assert first.stdout is not None
            held = {(await asyncio.to_thread(first.stdout.readline)).split()[1] for _ in range(3)}
            await until(batch, admitted=8, resident=3, resident_queued=5)
            with harness(service, "run") as second:
                await until(batch, admitted=8, resident=3, resident_queued=5, waiting=1)
                first.kill()
                assert second.stdout is not None
                lines = (await asyncio.to_thread(second.stdout.read)).splitlines()
                assert await asyncio.to_thread(second.wait, 20) == 0
        await until(batch, finished=12, resident=0, resident_queued=0)
    inside = most = 0
    for line in lines:
        inside += 1 if line.startswith("in ") else -1
        most = max(most, inside)
    assert 1 <= most <= 3
    assert {line.split()[1] for line in lines} == set(names) >= held
    report = batch.report()
    assert report.totals.readmissions == 8
    assert sum(times.resident_s for times in report.samples.values()) < report.totals.resident_s
