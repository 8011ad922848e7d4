"""The blocking batch: the same promises as the asyncio one, from many threads."""

import random
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from coresched import sync
from coresched.batch.records import TransitionError
from coresched.client.blocking import Batch, Environment, Sample, Turn
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


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5.0
    while not condition():
        assert time.monotonic() < deadline, "the batch never came to the expected state"
        time.sleep(0.001)


def in_queues(batch: Batch) -> int:
    totals = batch.report().totals
    return totals.waiting + totals.environment_queued + totals.resident_queued


def hold(batch: Batch, name: str, release: threading.Event, seen: list[str]) -> None:
    with batch.sample(name):
        seen.append(name)
        assert release.wait(5.0)


def hold_environment(batch: Batch, name: str, release: threading.Event, seen: list[str]) -> None:
    with batch.sample(name) as sample, sample.environment():
        seen.append(name)
        assert release.wait(5.0)


def hold_resident(batch: Batch, name: str, release: threading.Event, seen: list[str]) -> None:
    with batch.sample(name) as sample, sample.resident():
        seen.append(name)
        assert release.wait(5.0)


Holder = Callable[[Batch, str, threading.Event, list[str]], None]
CONTENDED = pytest.mark.parametrize(
    ("holder", "options"),
    [
        (hold, {"sample_concurrency": 1}),
        (hold_environment, {"sample_concurrency": 9, "environment_concurrency": 1}),
        (hold_resident, {"sample_concurrency": 9, "resident_concurrency": 1}),
    ],
    ids=["admission", "environment", "resident"],
)


def test_sync_is_the_public_name() -> None:
    assert sync.Batch is Batch


def test_one_sample_through_all_its_stages(clock: Any) -> None:
    with sync.Batch(sample_concurrency=2, environment_concurrency=1, workers=["w0", "w1"]) as batch:
        with batch.sample("task-1") as sample:
            for _ in range(2):
                with sample.inference() as turn:
                    assert turn.label == sample.id == "task-1"
                    assert turn.worker in ("w0", "w1")
                    assert turn.headers == {"x-smg-routing-key": "task-1", "x-session-id": "task-1"}
                    clock.now += 2.0
                with sample.environment() as stage:
                    assert stage.queue_s == 0.0
                    clock.now += 5.0
        assert_nothing_held(batch)
    times = batch.report().samples["task-1"]
    assert (times.state, times.turns, times.environment_stages) == ("finished", 2, 2)
    assert (times.inference_s, times.environment_queue_s, times.environment_s) == (4.0, 0.0, 10.0)


def test_sticky_bounded_begins_on_the_least_loaded_and_forgets_who_has_ended() -> None:
    with sync.Batch(sample_concurrency=3, workers=["w0", "w1"], router="sticky-bounded") as batch:

        def worker_of(sample: Sample) -> str | None:
            with sample.inference() as turn:
                return turn.worker

        with batch.sample("a") as a, batch.sample("b") as b:
            assert [worker_of(sample) for sample in (a, b, b, a)] == ["w0", "w1", "w1", "w0"]
        with batch.sample("c") as c, batch.sample("d") as d, batch.sample("e") as e:
            assert [worker_of(sample) for sample in (c, d, e)] == ["w0", "w1", "w0"]
        assert_nothing_held(batch)


@CONTENDED
def test_waiting_threads_get_the_slot_in_order_one_at_a_time(holder: Holder, options: dict[str, Any]) -> None:
    seen: list[str] = []
    releases = {name: threading.Event() for name in "abcd"}
    with Batch(**options) as batch, ThreadPoolExecutor(4) as pool:
        runs = []
        for waiting, name in enumerate("abcd"):
            runs.append(pool.submit(holder, batch, name, releases[name], seen))
            until(lambda: len(seen) == 1)
            until(lambda waiting=waiting: in_queues(batch) == waiting)  # type: ignore[misc]
        for already in ("a", "ab", "abc", "abcd"):
            until(lambda already=already: seen == list(already))  # type: ignore[misc]
            releases[already[-1]].set()
        for run in runs:
            run.result()
        assert_nothing_held(batch)


@pytest.mark.parametrize("where", ["sample", "inference", "environment"])
def test_a_raising_body_frees_all_it_held(where: str) -> None:
    def body() -> None:
        with batch.sample("a") as sample:
            if where == "inference":
                with sample.inference():
                    raise ZeroDivisionError
            if where == "environment":
                with sample.environment():
                    raise ZeroDivisionError
            raise ZeroDivisionError

    with Batch(sample_concurrency=1, environment_concurrency=1, workers=["w"]) as batch:
        with pytest.raises(ZeroDivisionError):
            body()
        assert_nothing_held(batch)
        assert batch.report().samples["a"].state == "withdrawn"
        with batch.sample("b") as sample, sample.environment():
            pass


def test_a_failed_stage_can_be_tried_again_and_double_exit_frees_once() -> None:
    with Batch(sample_concurrency=1, environment_concurrency=1, workers=["w"]) as batch:
        sample = batch.sample("a")
        with sample:
            for make in (sample.inference, sample.environment):
                stage: Turn | Environment = make()
                with pytest.raises(OSError, match="flaky"), stage:
                    raise OSError("flaky")
                with stage:
                    pass
                stage.__exit__(None, None, None)
        sample.__exit__(None, None, None)
        times = batch.report().samples["a"]
        assert (times.state, times.turns, times.environment_stages) == ("finished", 1, 1)
        assert_nothing_held(batch)
    batch.__exit__(None, None, None)


def test_wrong_uses_are_refused() -> None:
    batch = Batch(sample_concurrency=1)
    with pytest.raises(RuntimeError, match="enter it first"):
        batch.sample("a")
    with batch:
        with pytest.raises(RuntimeError, match="entered once"):
            batch.__enter__()
        with batch.sample("a") as sample:
            with pytest.raises(ValueError, match="'a' again"):
                batch.sample("a")
            with pytest.raises(RuntimeError, match="entered once"):
                sample.__enter__()
            with sample.inference(), pytest.raises(TransitionError, match="in an inference turn"):
                sample.environment().__enter__()
        with pytest.raises(TypeError, match="sample id must"):
            batch.sample(7)  # type: ignore[arg-type]
        assert_nothing_held(batch)
    with pytest.raises(BatchClosedError):
        batch.sample("b")


@CONTENDED
def test_leaving_the_batch_ends_every_wait_with_an_error(holder: Holder, options: dict[str, Any]) -> None:
    release = threading.Event()
    seen: list[str] = []
    with ThreadPoolExecutor(4) as pool:
        with Batch(**options) as batch:
            first = pool.submit(holder, batch, "first", release, seen)
            until(lambda: seen == ["first"])
            waiters = [pool.submit(holder, batch, name, release, seen) for name in "abc"]
            until(lambda: in_queues(batch) == 3)
        for waiter in waiters:
            with pytest.raises(BatchClosedError):
                waiter.result(timeout=5.0)
        final = batch.report()
        assert {times.state for times in final.samples.values()} == {"withdrawn"}
        release.set()
        first.result(timeout=5.0)  # its block may end; there is nothing left to free
        assert batch.report() == final
        assert seen == ["first"]
        assert_nothing_held(batch)


@CONTENDED
def test_an_interrupted_wait_leaves_nothing_held(holder: Holder, options: dict[str, Any]) -> None:
    """A real SIGINT, while the main thread waits and others wait behind it."""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    main = threading.main_thread().ident
    assert main is not None
    release = threading.Event()
    seen: list[str] = []

    def interrupt() -> None:
        until(lambda: in_queues(batch) == 1)
        behind.append(pool.submit(holder, batch, "behind", release, seen))
        until(lambda: in_queues(batch) == 2)
        time.sleep(0.05)  # the main thread has registered; let it reach its wait
        signal.pthread_kill(main, signal.SIGINT)

    behind: list[Any] = []
    with ThreadPoolExecutor(3) as pool, Batch(**options) as batch:
        first = pool.submit(holder, batch, "first", release, seen)
        until(lambda: seen == ["first"])
        killer = pool.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            holder(batch, "interrupted", release, seen)
        killer.result()
        assert in_queues(batch) == 1
        assert batch.report().samples["interrupted"].state == "withdrawn"
        release.set()
        first.result()
        behind[0].result(timeout=5.0)
        assert seen == ["first", "behind"]
        assert_nothing_held(batch)


def test_an_interrupted_stage_leaves_the_sample_running() -> None:
    main = threading.main_thread().ident
    assert main is not None
    release = threading.Event()
    seen: list[str] = []

    def interrupt() -> None:
        until(lambda: in_queues(batch) == 1)
        time.sleep(0.05)
        signal.pthread_kill(main, signal.SIGINT)

    with ThreadPoolExecutor(2) as pool, Batch(sample_concurrency=2, environment_concurrency=1) as batch:
        first = pool.submit(hold_environment, batch, "first", release, seen)
        until(lambda: seen == ["first"])
        with batch.sample("second") as sample:
            killer = pool.submit(interrupt)
            with pytest.raises(KeyboardInterrupt), sample.environment():
                pass
            killer.result()
            assert batch.report().samples["second"].state == "admitted"
            assert in_queues(batch) == 0
            release.set()
            with sample.environment():
                pass
        first.result()
        assert_nothing_held(batch)


def test_many_threads_with_failures_keep_the_limits_and_leak_nothing() -> None:
    c_s, c_e, c_r, threads, samples = 6, 2, 4, 16, 640
    mutex = threading.Lock()
    inside = {"sample": 0, "environment": 0, "resident": 0}
    limit = {"sample": c_s, "environment": c_e, "resident": c_r}

    def enter(kind: str) -> None:
        with mutex:
            inside[kind] += 1
            assert inside[kind] <= limit[kind]

    def leave(kind: str) -> None:
        with mutex:
            inside[kind] -= 1

    def work(sample: Sample, rng: random.Random) -> int:
        turns = 0
        for _ in range(rng.randint(0, 4)):
            with suppress(OSError), sample.inference() as turn:
                assert turn.worker is not None
                if rng.random() < 0.1:
                    raise OSError
                turns += 1
            with suppress(OSError), sample.environment():
                enter("environment")
                try:
                    time.sleep(rng.random() / 5000)
                    if rng.random() < 0.1:
                        raise OSError
                finally:
                    leave("environment")
        return turns

    def run(number: int) -> int:
        rng = random.Random(number)
        turns = 0
        with batch.sample(f"s{number}") as sample:
            enter("sample")
            try:
                with sample.resident():
                    enter("resident")
                    try:
                        turns = work(sample, rng)
                        if rng.random() < 0.1:
                            raise ZeroDivisionError
                    finally:
                        leave("resident")
            finally:
                leave("sample")
        return turns

    with (
        Batch(
            sample_concurrency=c_s,
            environment_concurrency=c_e,
            resident_concurrency=c_r,
            workers=["w0", "w1", "w2"],
        ) as batch,
        ThreadPoolExecutor(threads) as pool,
    ):
        runs = [pool.submit(run, number) for number in range(samples)]
        failures = [run.exception() for run in runs]
        assert {type(failure) for failure in failures} == {type(None), ZeroDivisionError}
        assert_nothing_held(batch)
    report = batch.report()
    assert report.totals.samples == samples
    assert report.totals.withdrawn == sum(failure is not None for failure in failures)
    finished = [run.result() for run in runs if run.exception() is None]
    assert finished == [
        report.samples[f"s{number}"].turns for number in range(samples) if failures[number] is None
    ]
