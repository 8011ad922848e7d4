"""What the blocking client tells the service when its threads are interrupted, raise or wait for ever."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from fake_batches import Blocked, FakeBatches, refuse

import coresched
from coresched import sync
from coresched.v1 import batches_pb2 as pb


def connected(fake: FakeBatches, **options: Any) -> Any:
    return sync.connect(fake.address, **{"batch": "b", "sample_concurrency": 2, **options})


@contextmanager
def interrupted(blocked: Blocked) -> Iterator[None]:
    """A real SIGINT for the main thread, once the service has its call."""
    main = threading.main_thread().ident
    assert main is not None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def interrupt() -> None:
        assert blocked.begun.wait(10)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        yield
    thread.join()


def test_an_interrupted_wait_for_admission_withdraws_the_sample_and_ends_the_call(fake: FakeBatches) -> None:
    wait = Blocked(pb.AwaitAdmissionResponse())
    fake.script["AwaitAdmission"].append(wait)
    with connected(fake) as batch:
        with interrupted(wait):
            batch.sample("a").__enter__()
        (finish,) = fake.of("FinishSample")
        assert (finish.sample, finish.withdrawn) == ("a", True)
        assert wait.ended.wait(10)


def test_an_interrupted_wait_for_a_slot_gives_it_back_and_the_sample_goes_on(fake: FakeBatches) -> None:
    wait = Blocked(pb.AcquireEnvironmentResponse())
    fake.script["AcquireEnvironment"].append(wait)
    fake.script["ReleaseEnvironment"].append(refuse(grpc.StatusCode.FAILED_PRECONDITION, "queued"))
    with connected(fake) as batch, batch.sample("a") as sample:
        states = [pb.SAMPLE_STATE_ENVIRONMENT]
        fake.always["SubmitSamples"] = lambda *_: pb.SubmitSamplesResponse(states=[states.pop(0)])
        with interrupted(wait):
            sample.environment().__enter__()
        assert wait.ended.wait(10)
        assert [release.failed for release in fake.of("ReleaseEnvironment")] == [True, True]
        with sample.inference():
            pass
    assert [finish.withdrawn for finish in fake.of("FinishSample")] == [False]


def test_an_interrupted_turn_is_failed(fake: FakeBatches) -> None:
    starting = Blocked(pb.StartTurnResponse())
    fake.script["StartTurn"].append(starting)
    with connected(fake) as batch, batch.sample("a") as sample:
        with interrupted(starting):
            sample.inference().__enter__()
        with sample.inference():
            pass
    first, same, _ = fake.of("StartTurn")
    assert same == first
    assert [finish.failed for finish in fake.of("FinishTurn")] == [True, False]


WAITS: list[tuple[str, Any, Callable[[Any, Any], Any]]] = [
    ("AwaitAdmission", pb.AwaitAdmissionResponse(), lambda batch, sample: batch.sample("b").__enter__()),
    ("AwaitAdmission", pb.AwaitAdmissionResponse(), lambda batch, sample: next(batch.admissions())),
    (
        "AcquireEnvironment",
        pb.AcquireEnvironmentResponse(),
        lambda _, sample: sample.environment().__enter__(),
    ),
]


@pytest.mark.parametrize(("method", "reply", "step"), WAITS, ids=["sample", "admissions", "environment"])
def test_leaving_the_batch_ends_every_wait(
    fake: FakeBatches, method: str, reply: Any, step: Callable[[Any, Any], Any]
) -> None:
    with ThreadPoolExecutor(1) as pool:
        with connected(fake) as batch, batch.sample("a") as sample:
            wait = fake.always[method] = Blocked(reply)
            waiting = pool.submit(step, batch, sample)
            assert wait.begun.wait(10)
            batch.__exit__(None, None, None)
        with pytest.raises(coresched.BatchClosedError):
            waiting.result(10)
        assert wait.ended.wait(10)
    assert fake.of("FinishSample") == []  # leaving withdrew them
    assert len(fake.of("LeaveBatch")) == 1


def test_a_wait_whose_connection_broke_is_sent_again(fake: FakeBatches) -> None:
    fake.script["AcquireEnvironment"].extend([refuse(grpc.StatusCode.UNAVAILABLE)] * 3)
    with connected(fake) as batch, batch.sample("a") as sample, sample.environment() as stage:
        assert stage.queue_s == 0.0
    assert len({request.request_id for request in fake.of("AcquireEnvironment")}) == 1


def test_a_lost_session_is_told_to_every_thread(fake: FakeBatches) -> None:
    fake.heartbeat_s = 0.01
    lost = refuse(grpc.StatusCode.NOT_FOUND, "session must be open")

    def run() -> None:
        with connected(fake) as batch, batch.sample("a") as sample, sample.inference():
            wait = fake.always["AwaitAdmission"] = Blocked(pb.AwaitAdmissionResponse())
            waiting = pool.submit(batch.sample("b").__enter__)
            assert wait.begun.wait(10)
            fake.always["Heartbeat"] = lost
            with pytest.raises(coresched.SessionLostError, match="session must be open"):
                waiting.result(10)

    with ThreadPoolExecutor(1) as pool, pytest.raises(coresched.SessionLostError):
        run()
    for method in ("FinishTurn", "FinishSample", "LeaveBatch"):
        assert fake.of(method) == []


def test_a_sample_that_ended_before_or_runs_elsewhere_is_told(fake: FakeBatches) -> None:
    ended = pb.SubmitSamplesResponse(states=[pb.SAMPLE_STATE_WITHDRAWN])
    fake.script["SubmitSamples"].append(lambda *_: ended)
    fake.script["AwaitAdmission"].append(refuse(grpc.StatusCode.FAILED_PRECONDITION, "sample is claimed"))
    with connected(fake) as batch:
        with pytest.raises(coresched.SampleEndedError, match="is withdrawn already"):
            batch.sample("a").__enter__()
        with pytest.raises(coresched.SampleTakenError):
            batch.sample("b").__enter__()
    assert fake.of("FinishSample") == []


def test_a_stage_that_outlived_its_lease_is_told(fake: FakeBatches) -> None:
    fake.always["ReleaseEnvironment"] = lambda *_: pb.ReleaseEnvironmentResponse(expired=True)

    def stage() -> None:
        with sample.environment(max_s=2.5):
            pass

    with connected(fake) as batch, batch.sample("a") as sample:
        with pytest.raises(coresched.LeaseExpiredError, match=r"max_s of 2\.5 s"):
            stage()
        with pytest.raises(ValueError, match="max_s must be above 0"):
            sample.environment(max_s=0)


def test_admissions_in_several_threads_share_the_samples(fake: FakeBatches) -> None:
    names = [f"s{n}" for n in range(40)]
    left = iter(names)
    fake.always["AwaitAdmission"] = lambda *_: pb.AwaitAdmissionResponse(sample=next(left, ""))
    seen: list[str] = []

    def run() -> None:
        for sample in batch.admissions():
            with sample:
                seen.append(sample.id)

    with connected(fake) as batch, ThreadPoolExecutor(4) as pool:
        batch.submit(names)
        for future in [pool.submit(run) for _ in range(4)]:
            future.result(10)
    assert sorted(seen) == sorted(names)
    assert sorted(finish.sample for finish in fake.of("FinishSample")) == sorted(names)


def test_a_fork_is_told_to_connect_anew(fake: FakeBatches, monkeypatch: pytest.MonkeyPatch) -> None:
    with connected(fake) as batch, batch.sample("a") as sample:
        own = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: own + 1)  # as its child would see it
        with pytest.raises(RuntimeError, match="connect anew"):
            sample.inference().__enter__()
        monkeypatch.undo()
