"""The asyncio batch: waiting, cancelling, failing and leaving, with nothing leaked or freed twice."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from coresched.batch.records import TransitionError
from coresched.client.embedded import Batch, Environment, Sample, Turn
from coresched.client.local import BatchClosedError


def assert_nothing_held(batch: Batch) -> None:
    totals = batch.report().totals
    assert (totals.waiting, totals.admitted) == (0, 0)
    assert (totals.environment_queued, totals.environment_running) == (0, 0)
    assert (totals.resident_queued, totals.resident) == (0, 0)
    assert totals.finished + totals.withdrawn == totals.samples
    local = batch._local
    assert local._waiters == {}
    assert local._router is None or set(local._router.loads().values()) == {0}


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(10):
        await asyncio.sleep(0)


async def hold(batch: Batch, name: str, release: asyncio.Event, seen: list[str]) -> None:
    async with batch.sample(name):
        seen.append(name)
        await release.wait()


async def hold_environment(batch: Batch, name: str, release: asyncio.Event, seen: list[str]) -> None:
    async with batch.sample(name) as sample, sample.environment():
        seen.append(name)
        await release.wait()


async def hold_resident(batch: Batch, name: str, release: asyncio.Event, seen: list[str]) -> None:
    async with batch.sample(name) as sample, sample.resident():
        seen.append(name)
        await release.wait()


Holder = Callable[[Batch, str, asyncio.Event, list[str]], Awaitable[None]]
# Each holder contends for one slot of its kind.
CONTENDED = pytest.mark.parametrize(
    ("holder", "options"),
    [
        (hold, {"sample_concurrency": 1}),
        (hold_environment, {"sample_concurrency": 9, "environment_concurrency": 1}),
        (hold_resident, {"sample_concurrency": 9, "resident_concurrency": 1}),
    ],
    ids=["admission", "environment", "resident"],
)


async def test_one_sample_through_all_its_stages(clock: Any) -> None:
    async with Batch(sample_concurrency=2, environment_concurrency=1, workers=["w0", "w1"]) as batch:
        async with batch.sample("task-1") as sample:
            assert sample.id == "task-1"
            workers = set()
            for _ in range(3):
                async with sample.inference() as turn:
                    assert turn.label == "task-1"
                    assert turn.headers == {"x-smg-routing-key": "task-1", "x-session-id": "task-1"}
                    assert turn.worker is not None
                    assert batch._local._router is not None
                    assert batch._local._router.loads()[turn.worker] == 1
                    workers.add(turn.worker)
                    clock.now += 2.0
                async with sample.environment() as stage:
                    assert stage.queue_s == 0.0
                    clock.now += 5.0
        assert len(workers) == 1  # the home worker, each time
        assert_nothing_held(batch)
    report = batch.report()
    times = report.samples["task-1"]
    assert (times.state, times.turns, times.environment_stages) == ("finished", 3, 3)
    assert (times.inference_s, times.environment_queue_s, times.environment_s) == (6.0, 0.0, 15.0)
    assert (times.submitted_at, times.finished_at) == (0.0, 21.0)
    assert (report.totals.turns, report.totals.makespan_s) == (3, 21.0)


async def test_without_workers_there_is_no_routing() -> None:
    async with (
        Batch(sample_concurrency=1) as batch,
        batch.sample("a") as sample,
        sample.inference() as turn,
    ):
        assert turn.worker is None


@CONTENDED
async def test_waiters_get_the_slot_in_order_one_at_a_time(holder: Holder, options: dict[str, Any]) -> None:
    async with Batch(**options) as batch:
        seen: list[str] = []
        releases = {name: asyncio.Event() for name in "abc"}
        tasks = [asyncio.ensure_future(holder(batch, name, releases[name], seen)) for name in "abc"]
        for already in ("a", "ab", "abc"):
            await settle()
            assert seen == list(already)
            releases[already[-1]].set()
        await asyncio.gather(*tasks)
        assert_nothing_held(batch)


async def test_the_deeper_trajectory_gets_the_slot_first_under_caas_only() -> None:
    for policy, expected in (("caas", ["first", "deep", "shallow"]), ("fcfs", ["first", "shallow", "deep"])):
        seen: list[str] = []
        async with Batch(
            sample_concurrency=3,
            environment_concurrency=1,
            environment_policy=policy,  # type: ignore[arg-type]
        ) as batch:
            release = asyncio.Event()

            async def run(
                name: str,
                turns: int,
                batch: Batch = batch,
                seen: list[str] = seen,
                go: asyncio.Event = release,
            ) -> None:
                async with batch.sample(name) as sample:
                    for _ in range(turns):
                        async with sample.inference():
                            pass
                    async with sample.environment():
                        seen.append(name)
                        await go.wait()

            tasks = [asyncio.ensure_future(run(*job)) for job in (("first", 0), ("shallow", 1), ("deep", 4))]
            await settle()
            release.set()
            await asyncio.gather(*tasks)
        assert seen == expected


async def test_queue_s_is_the_wait_and_no_tool_time(clock: Any) -> None:
    async with Batch(sample_concurrency=2, environment_concurrency=1) as batch:

        async def second() -> None:
            async with batch.sample("second") as sample:
                stage = sample.environment()
                assert stage.queue_s == 0.0
                async with stage:
                    assert stage.queue_s == 30.0
                    clock.now += 4.0

        async with batch.sample("first") as sample, sample.environment():
            task = asyncio.ensure_future(second())
            await settle()
            clock.now += 30.0
        await task
        times = batch.report().samples["second"]
        assert (times.environment_queue_s, times.environment_s) == (30.0, 4.0)


# Failing.


@pytest.mark.parametrize("where", ["sample", "inference", "environment"])
async def test_a_raising_body_frees_all_it_held(where: str) -> None:
    async with Batch(sample_concurrency=1, environment_concurrency=1, workers=["w"]) as batch:

        async def body() -> None:
            async with batch.sample("a") as sample:
                if where == "inference":
                    async with sample.inference():
                        raise ZeroDivisionError
                if where == "environment":
                    async with sample.environment():
                        raise ZeroDivisionError
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await body()
        assert_nothing_held(batch)
        assert batch.report().samples["a"].state == "withdrawn"
        async with batch.sample("b") as sample, sample.environment():
            pass


async def test_a_failed_stage_can_be_tried_again(clock: Any) -> None:
    async def fail_in(stage: Turn | Environment) -> None:
        async with stage:
            clock.now += 7.0
            raise OSError("flaky")

    async with Batch(sample_concurrency=1, environment_concurrency=1, workers=["w"]) as batch:
        async with batch.sample("a") as sample:
            for make in (sample.inference, sample.environment):
                stage: Turn | Environment = make()
                with pytest.raises(OSError, match="flaky"):
                    await fail_in(stage)
                async with stage:  # the same object may be entered again
                    pass
        times = batch.report().samples["a"]
        assert (times.state, times.turns, times.environment_stages) == ("finished", 1, 1)
        assert (times.inference_s, times.failed_inference_s, times.environment_s) == (0.0, 7.0, 7.0)
        assert_nothing_held(batch)


async def test_stages_of_one_sample_do_not_overlap() -> None:
    async with Batch(sample_concurrency=1, workers=["w"]) as batch, batch.sample("a") as sample:
        async with sample.inference():
            with pytest.raises(TransitionError, match="in an inference turn"):
                async with sample.environment():
                    pass
            with pytest.raises(TransitionError, match="in an inference turn"):
                async with sample.inference():
                    pass
        assert batch._local._router is not None
        assert batch._local._router.loads() == {"w": 0}
        async with sample.environment():
            with pytest.raises(TransitionError, match="in an environment stage"):
                async with sample.inference():
                    pass


async def test_a_body_that_ends_with_its_stage_open_is_told_and_freed() -> None:
    async with Batch(sample_concurrency=1, workers=["w"]) as batch:
        with pytest.raises(TransitionError, match="does not allow the end of the sample; leave the stage"):
            async with batch.sample("a") as sample:
                turn = await sample.inference().__aenter__()
        assert batch.report().totals.admitted == 0
        await turn.__aexit__(None, None, None)  # the worker is still released, once
        await turn.__aexit__(None, None, None)
        assert_nothing_held(batch)


async def test_a_task_of_the_sample_that_outlives_it_does_not_wait_for_ever() -> None:
    async with Batch(sample_concurrency=2, environment_concurrency=1) as batch:
        release = asyncio.Event()
        holder = asyncio.ensure_future(hold_environment(batch, "holder", release, []))
        await settle()
        children = []

        async def body() -> None:
            async with batch.sample("a") as sample:
                children.append(asyncio.ensure_future(sample.environment().__aenter__()))
                await settle()

        with pytest.raises(TransitionError, match="queued"):
            await body()
        with pytest.raises(TransitionError, match="withdrawn"):
            await children[0]
        release.set()
        await holder
        assert_nothing_held(batch)


async def test_double_exit_frees_once() -> None:
    batch = Batch(sample_concurrency=1, environment_concurrency=1, workers=["w"])
    async with batch:
        sample = batch.sample("a")
        async with sample:
            turn, stage = sample.inference(), sample.environment()
            async with turn:
                pass
            await turn.__aexit__(None, None, None)
            async with stage:
                pass
            await stage.__aexit__(None, None, None)
        await sample.__aexit__(None, None, None)
        await sample.__aexit__(ValueError, ValueError(), None)
        assert batch.report().samples["a"].state == "finished"
        assert_nothing_held(batch)
        async with batch.sample("b"):
            assert batch.report().totals.admitted == 1
    await batch.__aexit__(None, None, None)


# Cancelling.


@CONTENDED
async def test_a_cancelled_waiter_leaves_the_queue(holder: Holder, options: dict[str, Any]) -> None:
    async with Batch(**options) as batch:
        seen: list[str] = []
        release = asyncio.Event()
        tasks = {name: asyncio.ensure_future(holder(batch, name, release, seen)) for name in "abc"}
        await settle()
        tasks["b"].cancel()
        await settle()
        totals = batch.report().totals
        assert totals.waiting + totals.environment_queued + totals.resident_queued == 1  # only c
        assert batch.report().samples["b"].state == "withdrawn"
        release.set()
        await asyncio.gather(tasks["a"], tasks["c"])
        assert seen == ["a", "c"]
        assert_nothing_held(batch)


@CONTENDED
@pytest.mark.parametrize("cancel_first", [False, True])
async def test_a_slot_granted_in_the_iteration_of_the_cancel_goes_to_the_next(
    holder: Holder, options: dict[str, Any], cancel_first: bool
) -> None:
    async with Batch(**options) as batch:
        seen: list[str] = []
        release = asyncio.Event()
        waiters: list[asyncio.Future[None]] = []

        async def first() -> None:
            async with batch.sample("first") as sample, sample.resident(), sample.environment():
                await settle()
                if cancel_first:
                    waiters[0].cancel()
            # The slot went to waiter 0 in this very step of the loop, before that task could run.
            if not cancel_first:
                waiters[0].cancel()

        task = asyncio.ensure_future(first())
        await asyncio.sleep(0)
        waiters += [asyncio.ensure_future(holder(batch, name, release, seen)) for name in ("gone", "next")]
        await task
        await settle()
        assert seen == ["next"]
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await waiters[0]
        await waiters[1]
        assert_nothing_held(batch)


async def test_a_stage_given_up_in_the_queue_leaves_the_sample_running() -> None:
    async def stage(sample: Sample) -> None:
        async with sample.environment():
            await asyncio.sleep(0)

    async with Batch(sample_concurrency=3, environment_concurrency=1) as batch:
        async with batch.sample("patient") as patient, batch.sample("sample") as sample:
            async with batch.sample("holder") as holder, holder.environment():
                given_up = asyncio.ensure_future(stage(sample))
                behind = asyncio.ensure_future(stage(patient))
                await settle()
                given_up.cancel()
                await settle()
                assert batch.report().samples["sample"].state == "admitted"
                assert list(batch._local._waiters) == ["patient"]
            await behind
            await stage(sample)
        assert batch.report().totals.environment_stages == 3
        assert_nothing_held(batch)


@pytest.mark.parametrize("block", range(8))
async def test_random_cancellations_leak_nothing(block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        await cancel_at_random(random.Random(seed))


async def cancel_at_random(rng: random.Random) -> None:
    c_s, c_e, c_r = rng.randint(1, 4), rng.randint(1, 2), rng.randint(1, 3)
    inside = {"sample": 0, "environment": 0, "resident": 0}

    async def pause() -> None:
        for _ in range(rng.randint(0, 2)):
            await asyncio.sleep(0)

    async def body(sample: Sample) -> None:
        for _ in range(rng.randint(0, 3)):
            with suppress(OSError):
                async with sample.inference():
                    await pause()
                    if rng.random() < 0.1:
                        raise OSError
            with suppress(OSError):
                async with sample.environment():
                    inside["environment"] += 1
                    assert inside["environment"] <= c_e
                    try:
                        await pause()
                        if rng.random() < 0.1:
                            raise OSError
                    finally:
                        inside["environment"] -= 1
        if rng.random() < 0.1:
            raise ZeroDivisionError

    async def run(name: str) -> None:
        await pause()
        async with batch.sample(name) as sample:
            inside["sample"] += 1
            assert inside["sample"] <= c_s
            try:
                if rng.random() < 0.3:
                    await body(sample)
                for _ in range(rng.randint(0, 2)):
                    async with sample.resident():
                        inside["resident"] += 1
                        assert inside["resident"] <= c_r
                        try:
                            await body(sample)
                        finally:
                            inside["resident"] -= 1
            finally:
                inside["sample"] -= 1

    async with Batch(
        sample_concurrency=c_s,
        environment_concurrency=c_e,
        resident_concurrency=c_r,
        workers=["w0", "w1"],
    ) as batch:
        tasks = [asyncio.ensure_future(run(f"s{i}")) for i in range(rng.randint(2, 12))]
        for _ in range(rng.randint(0, 12)):
            await asyncio.sleep(0)
            rng.choice(tasks).cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert outcome is None or isinstance(outcome, (asyncio.CancelledError, ZeroDivisionError))
        assert_nothing_held(batch)


# Leaving the batch, and using it wrongly.


async def test_leaving_the_batch_ends_every_wait_with_an_error() -> None:
    release = asyncio.Event()
    ready = asyncio.Event()

    async def next_stage_after_the_end() -> None:
        async with batch.sample("runs") as sample:
            async with sample.inference():
                ready.set()
                await release.wait()
            async with sample.environment():
                raise AssertionError("the batch is over")

    async with Batch(sample_concurrency=3, environment_concurrency=1, workers=["w"]) as batch:
        tasks = [
            asyncio.ensure_future(hold_environment(batch, "holds", release, [])),
            asyncio.ensure_future(next_stage_after_the_end()),
            asyncio.ensure_future(hold_environment(batch, "queued", release, [])),
            asyncio.ensure_future(hold(batch, "waits", release, [])),
        ]
        await ready.wait()
        await settle()
        before = batch.report().totals
        assert (before.waiting, before.admitted) == (1, 3)
        assert (before.environment_queued, before.environment_running) == (1, 1)
    final = batch.report()
    assert {times.state for times in final.samples.values()} == {"withdrawn"}
    release.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), *[BatchClosedError] * 3]
    assert batch.report() == final
    assert_nothing_held(batch)
    with pytest.raises(BatchClosedError):
        batch.sample("late")


@CONTENDED
async def test_a_slot_granted_as_the_batch_ends_is_no_slot(holder: Holder, options: dict[str, Any]) -> None:
    seen: list[str] = []
    async with (
        Batch(**options) as batch,
        batch.sample("first") as sample,
        sample.resident(),
        sample.environment(),
    ):
        second = asyncio.ensure_future(holder(batch, "second", asyncio.Event(), seen))
        await settle()
        # Granted just now, but the batch ends before that task can run.
    with pytest.raises(BatchClosedError):
        await second
    assert seen == []


def test_one_event_loop_a_batch() -> None:
    async def elsewhere(use: Callable[[], Awaitable[object]]) -> None:
        with pytest.raises(RuntimeError, match="event loop"):
            await use()

    def step(coroutine: Coroutine[Any, Any, None]) -> None:
        """As a runner that is not asyncio would."""
        with suppress(StopIteration):
            coroutine.send(None)

    async def main() -> None:
        async with Batch(sample_concurrency=2, workers=["w"]) as batch:
            other = asyncio.new_event_loop()
            async with batch.sample("a") as sample:
                for use in (
                    batch.sample("b").__aenter__,
                    sample.inference().__aenter__,
                    sample.environment().__aenter__,
                ):
                    await asyncio.to_thread(other.run_until_complete, elsewhere(use))
                    await asyncio.to_thread(step, elsewhere(use))
                async with sample.inference():
                    pass
            other.close()
            assert batch.report().totals.samples == 1
            assert_nothing_held(batch)

    asyncio.run(main())


async def test_a_batch_must_be_entered_and_only_once() -> None:
    batch = Batch(sample_concurrency=1)
    with pytest.raises(RuntimeError, match="enter it first"):
        batch.sample("a")
    async with batch:
        with pytest.raises(RuntimeError, match="entered once"):
            await batch.__aenter__()
    with pytest.raises(RuntimeError, match="entered once"):
        await batch.__aenter__()


async def test_a_sample_id_is_used_once() -> None:
    async with Batch(sample_concurrency=2) as batch:
        async with batch.sample("a") as sample:
            with pytest.raises(ValueError, match="'a' again"):
                batch.sample("a")
            with pytest.raises(RuntimeError, match="entered once"):
                await sample.__aenter__()
            assert batch.report().samples["a"].state == "admitted"  # the running one was left alone
        with pytest.raises(ValueError, match="'a' again"):
            batch.sample("a")


@pytest.mark.parametrize(("id", "error"), [("", ValueError), (7, TypeError), ("x" * 513, ValueError)])
async def test_bad_sample_ids_are_refused(id: Any, error: type[Exception]) -> None:
    async with Batch(sample_concurrency=1) as batch:
        with pytest.raises(error, match="sample id must"):
            batch.sample(id)


@pytest.mark.parametrize("id", ["tâche", "two\nlines", " padded"])
async def test_an_id_that_no_header_can_hold_still_runs_without_headers(id: str) -> None:
    async with (
        Batch(sample_concurrency=1) as batch,
        batch.sample(id) as sample,
        sample.inference() as turn,
    ):
        assert turn.label == id
        with pytest.raises(ValueError, match="printable ASCII"):
            _ = turn.headers


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sample_concurrency": 0}, ValueError, "sample_concurrency must be at least 1"),
        ({"environment_concurrency": -1}, ValueError, "environment_concurrency must be at least 1"),
        ({"resident_concurrency": 0}, ValueError, "resident_concurrency must be at least 1"),
        ({"resident_concurrency": 2.5}, TypeError, "resident_concurrency must be"),
        ({"environment_policy": "random"}, ValueError, "environment_policy must be"),
        ({"band_s": 0}, ValueError, "band_s must be above 0"),
        ({"workers": []}, ValueError, "workers must name at least one"),
        ({"workers": "w0"}, TypeError, "workers must be"),
        ({"load_bound": 0.5}, ValueError, "load_bound must be at least 1"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Batch(**{"sample_concurrency": 1, **options})
