"""What a harness sees of a batch, the same embedded and at a service: threads."""

import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from batches import Batches

from coresched import BatchClosedError, LeaseExpiredError, TransitionError


def until(batch: Any, **counts: int) -> None:
    """The whole batch comes to have so many samples in these states."""
    deadline = time.monotonic() + 10
    while counts != {name: getattr(batch.refresh().totals, name) for name in counts}:
        assert time.monotonic() < deadline, batch.refresh().totals
        time.sleep(0.005)


def nothing_held(totals: Any) -> bool:
    held = totals.waiting + totals.admitted + totals.environment_queued + totals.environment_running
    held += totals.resident_queued + totals.resident
    return held == 0 and totals.finished + totals.withdrawn == totals.samples


def hold(batch: Any, name: str, release: threading.Event, seen: list[str]) -> None:
    with batch.sample(name):
        seen.append(name)
        assert release.wait(10)


def hold_environment(batch: Any, name: str, release: threading.Event, seen: list[str]) -> None:
    with batch.sample(name) as sample, sample.environment():
        seen.append(name)
        assert release.wait(10)


def hold_resident(batch: Any, name: str, release: threading.Event, seen: list[str]) -> None:
    with batch.sample(name) as sample, sample.resident():
        seen.append(name)
        assert release.wait(10)


CONTENDED = pytest.mark.parametrize(
    ("holder", "options", "waiting"),
    [
        (hold, {"sample_concurrency": 1}, "waiting"),
        (hold_environment, {"sample_concurrency": 9, "environment_concurrency": 1}, "environment_queued"),
        (hold_resident, {"sample_concurrency": 9, "resident_concurrency": 1}, "resident_queued"),
    ],
    ids=["admission", "environment", "resident"],
)


def test_one_sample_through_all_its_stages(batches: Batches) -> None:
    with batches.make_blocking(sample_concurrency=2, environment_concurrency=1) as batch:
        with batch.sample("task-1") as sample:
            for _ in range(2):
                with sample.inference() as turn:
                    assert turn.label == sample.id == "task-1"
                    assert turn.worker in ("w0", "w1")
                    assert turn.headers == {"x-smg-routing-key": "task-1", "x-session-id": "task-1"}
                with sample.environment() as stage:
                    assert 0.0 <= stage.queue_s < 1.0
            with pytest.raises(OSError, match="flaky"), sample.inference():
                raise OSError("flaky")
        assert nothing_held(batch.refresh().totals)
    times = batch.report().samples["task-1"]
    assert (times.state, times.turns, times.environment_stages) == ("finished", 2, 2)
    assert times.inference_s > 0
    assert times.failed_inference_s > 0
    assert batch.progress == batch.report().totals


@CONTENDED
def test_slots_are_given_in_order_one_at_a_time(
    batches: Batches, holder: Any, options: dict[str, Any], waiting: str
) -> None:
    seen: list[str] = []
    releases = {name: threading.Event() for name in "abcd"}
    with batches.make_blocking(**options) as batch, ThreadPoolExecutor(4) as pool:
        runs = []
        for already, name in enumerate("abcd"):
            runs.append(pool.submit(holder, batch, name, releases[name], seen))
            until(batch, **{waiting: already, "samples": already + 1})
        for count, name in enumerate("abcd"):
            until(batch, **{waiting: 3 - count})
            while len(seen) <= count:
                time.sleep(0.001)
            assert seen == list("abcd"[: count + 1])
            releases[name].set()
        for run in runs:
            run.result(10)
        assert nothing_held(batch.refresh().totals)


@pytest.mark.parametrize("where", ["sample", "inference", "environment", "resident"])
def test_a_raising_body_frees_all_it_held(batches: Batches, where: str) -> None:
    def body() -> None:
        with batch.sample("a") as sample:
            if where != "sample":
                with getattr(sample, where)():
                    raise ZeroDivisionError
            raise ZeroDivisionError

    with batches.make_blocking(
        sample_concurrency=1, environment_concurrency=1, resident_concurrency=1
    ) as batch:
        with pytest.raises(ZeroDivisionError):
            body()
        assert batch.refresh().samples["a"].state == "withdrawn"
        with batch.sample("b") as sample, sample.resident(), sample.environment():
            pass


def test_steps_out_of_order_are_refused_in_the_same_words(batches: Batches) -> None:
    with batches.make_blocking(sample_concurrency=1) as batch:
        with batch.sample("a") as sample, sample.inference():
            with pytest.raises(TransitionError) as refused:
                sample.environment().__enter__()
            assert str(refused.value) == (
                "sample 'a' is in an inference turn, which does not allow sample.environment()"
            )
        with (
            pytest.raises(TransitionError, match="does not allow the end of the sample"),
            batch.sample("b") as sample,
        ):
            sample.environment().__enter__()
        assert nothing_held(batch.refresh().totals)
        with pytest.raises(ValueError, match="'a' again"):
            batch.sample("a")


@CONTENDED
def test_leaving_the_batch_ends_every_wait_with_an_error(
    batches: Batches, holder: Any, options: dict[str, Any], waiting: str
) -> None:
    release = threading.Event()
    with ThreadPoolExecutor(3) as pool:
        with batches.make_blocking(**options) as batch:
            first = pool.submit(holder, batch, "a", release, [])
            until(batch, samples=1, admitted=1)
            waiters = [pool.submit(holder, batch, name, release, []) for name in "bc"]
            until(batch, **{waiting: 2})
        for waiter in waiters:
            with pytest.raises(BatchClosedError):
                waiter.result(10)
        assert {times.state for times in batch.report().samples.values()} == {"withdrawn"}
        release.set()
        first.result(10)
    with pytest.raises(BatchClosedError):
        batch.sample("late")


@CONTENDED
def test_an_interrupted_wait_gives_its_place_to_the_next(
    batches: Batches, holder: Any, options: dict[str, Any], waiting: str
) -> None:
    """A real SIGINT, while the main thread waits."""
    main = threading.main_thread().ident
    assert main is not None
    release = threading.Event()
    seen: list[str] = []
    behind: list[Any] = []

    def interrupt() -> None:
        until(batch, **{waiting: 1})
        behind.append(pool.submit(holder, batch, "behind", release, seen))
        until(batch, **{waiting: 2})
        time.sleep(0.05)  # the service has its call; let the main thread reach its wait
        signal.pthread_kill(main, signal.SIGINT)

    with ThreadPoolExecutor(3) as pool, batches.make_blocking(**options) as batch:
        first = pool.submit(holder, batch, "first", release, seen)
        until(batch, admitted=1)
        while not seen:
            time.sleep(0.001)
        killer = pool.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            holder(batch, "interrupted", release, seen)
        killer.result(10)
        report = batch.refresh()
        assert getattr(report.totals, waiting) == 1
        assert report.samples["interrupted"].state == "withdrawn"
        release.set()
        first.result(10)
        behind[0].result(10)
        assert seen == ["first", "behind"]
        assert nothing_held(batch.refresh().totals)


def test_submitted_samples_are_shared_by_threads_until_all_have_ended(batches: Batches) -> None:
    seen: list[str] = []

    def run() -> None:
        for sample in batch.admissions():
            with sample, sample.inference():
                seen.append(sample.id)

    names = [f"s{n}" for n in range(20)]
    with batches.make_blocking(sample_concurrency=3) as batch, ThreadPoolExecutor(4) as pool:
        batch.submit(names)
        for future in [pool.submit(run) for _ in range(4)]:
            future.result(10)
    assert sorted(seen) == sorted(names)
    assert batch.report().totals.finished == 20


def test_a_slot_held_beyond_its_lease_goes_to_the_next(batches: Batches) -> None:
    with batches.make_blocking(sample_concurrency=2, environment_concurrency=1) as batch:

        def overrun() -> None:
            with slow.environment(max_s=0.2), quick.environment():
                pass

        with batch.sample("slow") as slow, batch.sample("quick") as quick:
            with pytest.raises(LeaseExpiredError, match=r"max_s of 0\.2 s"):
                overrun()
            with slow.environment(max_s=60):
                pass
        totals = batch.refresh().totals
        assert (totals.finished, totals.environment_stages) == (2, 2)


def test_many_threads_with_failures_keep_the_limits_and_leak_nothing(batches: Batches) -> None:
    mutex = threading.Lock()
    inside = {"sample": 0, "environment": 0, "resident": 0}

    def enter(rng: random.Random, kind: str, most: int) -> None:
        with mutex:
            inside[kind] += 1
            assert inside[kind] <= most
        try:
            time.sleep(rng.random() / 500)
            if rng.random() < 0.1:
                raise OSError
        finally:
            with mutex:
                inside[kind] -= 1

    def run(number: int) -> None:
        rng = random.Random(number)
        with batch.sample(f"s{number}") as sample:
            enter(rng, "sample", 4)
            with suppress(OSError), sample.resident():
                enter(rng, "resident", 3)
                for _ in range(rng.randint(0, 3)):
                    with suppress(OSError), sample.inference():
                        if rng.random() < 0.1:
                            raise OSError
                    with suppress(OSError), sample.environment():
                        enter(rng, "environment", 2)

    with (
        batches.make_blocking(
            sample_concurrency=4, environment_concurrency=2, resident_concurrency=3
        ) as batch,
        ThreadPoolExecutor(12) as pool,
    ):
        runs = [pool.submit(run, number) for number in range(60)]
        failures = [run.exception() for run in runs]
        assert {type(failure) for failure in failures} == {type(None), OSError}
        totals = batch.refresh().totals
        assert nothing_held(totals)
        assert totals.withdrawn == sum(failure is not None for failure in failures)


def test_a_turn_can_leave_out_the_worker_that_failed_it(batches: Batches) -> None:
    with batches.make_blocking(sample_concurrency=1) as batch, batch.sample("s") as sample:
        with sample.inference() as turn:
            home = turn.worker
        with sample.inference(exclude=[home]) as turn:
            assert {home, turn.worker} == {"w0", "w1"}
        with pytest.raises(LookupError, match="exclude must"), sample.inference(exclude=["w0", "w1"]):
            pass
        with sample.inference() as turn:
            assert turn.worker == home
    assert batch.report().samples["s"].turns == 3
