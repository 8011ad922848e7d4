"""What a harness sees of a batch, the same embedded and at a service: asyncio."""

import asyncio
from typing import Any

import pytest
from batches import Batches

from coresched import BatchClosedError, TransitionError


async def until(batch: Any, **counts: int) -> None:
    """The whole batch comes to have so many samples in these states."""

    async def come() -> None:
        while counts != {name: getattr((await batch.refresh()).totals, name) for name in counts}:
            await asyncio.sleep(0.005)

    await asyncio.wait_for(come(), 10)


def nothing_held(totals: Any) -> bool:
    held = totals.waiting + totals.admitted + totals.environment_queued + totals.environment_running
    held += totals.resident_queued + totals.resident
    return held == 0 and totals.finished + totals.withdrawn == totals.samples


async def hold(batch: Any, name: str, release: asyncio.Event, seen: list[str]) -> None:
    async with batch.sample(name):
        seen.append(name)
        await release.wait()


async def hold_environment(batch: Any, name: str, release: asyncio.Event, seen: list[str]) -> None:
    async with batch.sample(name) as sample, sample.environment():
        seen.append(name)
        await release.wait()


async def hold_resident(batch: Any, name: str, release: asyncio.Event, seen: list[str]) -> None:
    async with batch.sample(name) as sample, sample.resident():
        seen.append(name)
        await release.wait()


CONTENDED = pytest.mark.parametrize(
    ("holder", "options", "waiting"),
    [
        (hold, {"sample_concurrency": 1}, "waiting"),
        (hold_environment, {"sample_concurrency": 9, "environment_concurrency": 1}, "environment_queued"),
        (hold_resident, {"sample_concurrency": 9, "resident_concurrency": 1}, "resident_queued"),
    ],
    ids=["admission", "environment", "resident"],
)


async def test_one_sample_through_all_its_stages(batches: Batches) -> None:
    async with batches.make(sample_concurrency=2, environment_concurrency=1) as batch:
        async with batch.sample("task-1") as sample:
            assert sample.id == "task-1"
            workers = set()
            for _ in range(3):
                async with sample.inference() as turn:
                    assert turn.label == "task-1"
                    assert turn.headers == {"x-smg-routing-key": "task-1", "x-session-id": "task-1"}
                    workers.add(turn.worker)
                async with sample.environment() as stage:
                    assert 0.0 <= stage.queue_s < 1.0
            assert len(workers) == 1
            assert workers <= {"w0", "w1"}
            with pytest.raises(OSError, match="flaky"):
                async with sample.inference():
                    raise OSError("flaky")
        assert nothing_held((await batch.refresh()).totals)
    report = batch.report()
    times = report.samples["task-1"]
    assert (times.state, times.turns, times.environment_stages, times.admissions) == ("finished", 3, 3, 1)
    assert times.inference_s > 0
    assert times.failed_inference_s > 0
    assert times.environment_s > 0
    assert times.admitted_at is not None
    assert times.finished_at is not None
    assert times.environment_started_at is not None
    assert 0 <= times.submitted_at <= times.admitted_at <= times.environment_started_at <= times.finished_at
    totals = report.totals
    assert (totals.samples, totals.finished, totals.turns, totals.environment_stages) == (1, 1, 3, 3)
    assert totals.makespan_s == pytest.approx(times.finished_at - times.admitted_at)
    assert batch.progress == totals


@CONTENDED
async def test_slots_are_given_in_order_one_at_a_time(
    batches: Batches, holder: Any, options: dict[str, Any], waiting: str
) -> None:
    async with batches.make(**options) as batch:
        seen: list[str] = []
        releases = {name: asyncio.Event() for name in "abcdef"}
        tasks = []
        for already, name in enumerate("abcdef"):  # the order of requests for other slots is that of arrival
            tasks.append(asyncio.ensure_future(holder(batch, name, releases[name], seen)))
            if holder is not hold:
                await until(batch, **{waiting: already, "admitted": already + 1})
        for count, name in enumerate("abcdef"):
            await until(batch, **{waiting: 5 - count})
            while len(seen) <= count:
                await asyncio.sleep(0)
            assert seen == list("abcdef"[: count + 1])
            releases[name].set()
        await asyncio.gather(*tasks)
        assert nothing_held((await batch.refresh()).totals)


@pytest.mark.parametrize("policy", ["caas", "fcfs"])
async def test_the_deeper_trajectory_gets_the_slot_first_under_caas_only(
    batches: Batches, policy: str
) -> None:
    seen: list[str] = []
    release = asyncio.Event()

    async def run(name: str, turns: int) -> None:
        async with batch.sample(name) as sample:
            for _ in range(turns):
                async with sample.inference():
                    pass
            async with sample.environment():
                seen.append(name)
                await release.wait()

    async with batches.make(
        sample_concurrency=3, environment_concurrency=1, environment_policy=policy, band_s=3600.0
    ) as batch:
        tasks = []
        for queued, job in enumerate((("first", 0), ("shallow", 1), ("deep", 4))):
            tasks.append(asyncio.ensure_future(run(*job)))
            await until(batch, environment_queued=queued, environment_running=1)
        release.set()
        await asyncio.gather(*tasks)
    assert seen == ["first", *(["deep", "shallow"] if policy == "caas" else ["shallow", "deep"])]


@pytest.mark.parametrize("where", ["sample", "inference", "environment", "resident"])
async def test_a_raising_body_frees_all_it_held(batches: Batches, where: str) -> None:
    async def body() -> None:
        async with batch.sample("a") as sample:
            if where != "sample":
                async with getattr(sample, where)():
                    raise ZeroDivisionError
            raise ZeroDivisionError

    async with batches.make(sample_concurrency=1, environment_concurrency=1, resident_concurrency=1) as batch:
        with pytest.raises(ZeroDivisionError):
            await body()
        assert (await batch.refresh()).samples["a"].state == "withdrawn"
        async with batch.sample("b") as sample, sample.resident(), sample.environment():
            pass
        assert nothing_held((await batch.refresh()).totals)


@CONTENDED
async def test_a_cancelled_wait_gives_its_place_to_the_next(
    batches: Batches, holder: Any, options: dict[str, Any], waiting: str
) -> None:
    async with batches.make(**options) as batch:
        seen: list[str] = []
        release = asyncio.Event()
        tasks = []
        for already, name in enumerate(("first", "gone", "next")):
            tasks.append(asyncio.ensure_future(holder(batch, name, release, seen)))
            await until(batch, **{waiting: already})
            while not seen:
                await asyncio.sleep(0.005)
        tasks[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        report = await batch.refresh()
        assert getattr(report.totals, waiting) == 1
        assert report.samples["gone"].state == "withdrawn"
        release.set()
        await asyncio.gather(tasks[0], tasks[2])
        assert seen == ["first", "next"]
        assert nothing_held((await batch.refresh()).totals)


async def test_samples_given_up_before_they_are_known_leave_the_others_alone(batches: Batches) -> None:
    async with batches.make(sample_concurrency=1) as batch:
        seen: list[str] = []
        release = asyncio.Event()
        runs = []
        for n in range(20):  # the first names are on their way to the service, the last wait for that
            runs.append(asyncio.create_task(hold(batch, f"task-{n}", release, seen)))
            await asyncio.sleep(0)
        for run in runs[1::2]:
            run.cancel()
        release.set()
        await asyncio.gather(*runs[::2])
        assert seen == [f"task-{n}" for n in range(0, 20, 2)]
        await asyncio.wait(runs)
        await until(batch, finished=10, admitted=0, waiting=0)
        assert nothing_held((await batch.refresh()).totals)


async def test_a_stage_given_up_in_the_queue_leaves_the_sample_running(batches: Batches) -> None:
    async with batches.make(sample_concurrency=2, environment_concurrency=1) as batch:
        async with batch.sample("sample") as sample:
            async with batch.sample("holder") as holder, holder.environment():
                waiting = asyncio.ensure_future(sample.environment().__aenter__())
                await until(batch, environment_queued=1)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                assert (await batch.refresh()).samples["sample"].state == "admitted"
            async with sample.environment():
                pass
        assert (await batch.refresh()).totals.environment_stages == 2


async def test_steps_out_of_order_are_refused_in_the_same_words(batches: Batches) -> None:
    async with batches.make(sample_concurrency=1) as batch, batch.sample("a") as sample:
        async with sample.inference():
            with pytest.raises(TransitionError) as refused:
                await sample.environment().__aenter__()
            assert str(refused.value) == (
                "sample 'a' is in an inference turn, which does not allow sample.environment()"
            )
            with pytest.raises(TransitionError, match=r"does not allow sample.inference\(\)"):
                await sample.inference().__aenter__()
        async with sample.environment():
            with pytest.raises(TransitionError) as refused:
                await sample.inference().__aenter__()
            assert (refused.value.sample, refused.value.state) == ("a", "environment")


async def test_a_body_that_ends_with_its_stage_open_is_told_and_freed(batches: Batches) -> None:
    async with batches.make(sample_concurrency=1) as batch:
        with pytest.raises(
            TransitionError, match="in an inference turn, which does not allow the end of the sample"
        ):
            async with batch.sample("a") as sample:
                turn = await sample.inference().__aenter__()
        await turn.__aexit__(None, None, None)
        assert nothing_held((await batch.refresh()).totals)
        assert batch.report().samples["a"].state == "withdrawn"


@CONTENDED
async def test_leaving_the_batch_ends_every_wait_with_an_error(
    batches: Batches, holder: Any, options: dict[str, Any], waiting: str
) -> None:
    release = asyncio.Event()
    async with batches.make(**options) as batch:
        tasks = [asyncio.ensure_future(holder(batch, name, release, [])) for name in "abc"]
        await until(batch, **{waiting: 2})
    assert {times.state for times in batch.report().samples.values()} == {"withdrawn"}
    release.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), BatchClosedError, BatchClosedError]
    with pytest.raises(BatchClosedError):
        batch.sample("late")
    with pytest.raises(RuntimeError, match="entered once"):
        await batch.__aenter__()


async def test_ids_are_checked_and_used_once(batches: Batches) -> None:
    async with batches.make(sample_concurrency=2) as batch:
        sample = batch.sample("a")
        async with sample:
            with pytest.raises(RuntimeError, match="entered once"):
                await sample.__aenter__()
        with pytest.raises(ValueError, match="'a' again"):
            batch.sample("a")
        for wrong in ("", 7, "x" * 513):
            with pytest.raises((ValueError, TypeError), match="sample id must"):
                batch.sample(wrong)
            with pytest.raises((ValueError, TypeError), match="sample id must"):
                await batch.submit(["good", wrong])
        assert list((await batch.refresh()).samples) == ["a"]


async def test_a_turn_can_leave_out_the_worker_that_failed_it(batches: Batches) -> None:
    async with (
        batches.make(sample_concurrency=1) as batch,
        batch.sample("s") as sample,
    ):
        async with sample.inference() as turn:
            home = turn.worker
        async with sample.inference(exclude=[home]) as turn:
            assert {home, turn.worker} == {"w0", "w1"}
        for exclude in (["w0", "w1"], ["w9"]):
            with pytest.raises(LookupError, match="exclude must"):
                async with sample.inference(exclude=exclude):
                    pass
        for wrong in ("w0", [0]):
            with pytest.raises(TypeError, match="exclude must be a collection of worker names"):
                sample.inference(exclude=wrong)
        # None of these began a turn, and nothing is excluded for good.
        async with sample.inference() as turn:
            assert turn.worker == home
    assert batch.report().samples["s"].turns == 3
