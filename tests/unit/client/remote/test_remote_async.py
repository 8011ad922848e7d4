"""What the asyncio client tells the service when blocks are cancelled, raise or are used wrongly."""

import asyncio
import os
import sys
from typing import Any

import grpc
import pytest
from fake_batches import UNAVAILABLE, Blocked, FakeBatches, refuse

import coresched
from coresched.v1 import batches_pb2 as pb


def connected(fake: FakeBatches, **options: Any) -> Any:
    return coresched.connect(fake.address, **{"batch": "b", "sample_concurrency": 2, **options})


async def begun(blocked: Blocked) -> None:
    assert await asyncio.to_thread(blocked.begun.wait, 10)


async def ended(blocked: Blocked) -> None:
    assert await asyncio.to_thread(blocked.ended.wait, 10)


async def cancelled(task: "asyncio.Future[Any]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancelled_wait_for_admission_withdraws_the_sample_and_ends_the_call(
    fake: FakeBatches,
) -> None:
    wait = Blocked(pb.AwaitAdmissionResponse())
    fake.script["AwaitAdmission"].append(wait)
    async with connected(fake) as batch:
        entering = asyncio.ensure_future(batch.sample("a").__aenter__())
        await begun(wait)
        await cancelled(entering)
        (finish,) = fake.of("FinishSample")
        assert (finish.sample, finish.withdrawn) == ("a", True)
        await ended(wait)


async def test_a_sample_cancelled_as_it_is_submitted_is_not_left_open(fake: FakeBatches) -> None:
    submitting = Blocked(pb.SubmitSamplesResponse(states=[pb.SAMPLE_STATE_OPEN]))
    fake.script["SubmitSamples"].append(submitting)
    async with connected(fake) as batch:
        entering = asyncio.ensure_future(batch.sample("a").__aenter__())
        await begun(submitting)
        entering.cancel()
        submitting.go.set()
        # The service hears of the claim after the withdrawal, which it refuses then.
        claim = fake.always["AwaitAdmission"] = Blocked(pb.AwaitAdmissionResponse())
        fake.script["FinishSample"].append(refuse(grpc.StatusCode.FAILED_PRECONDITION, "sample is open"))
        with pytest.raises(asyncio.CancelledError):
            await entering
        await ended(claim)
        assert [call.sample for call in fake.of("AwaitAdmission")] == ["a"]
        assert [finish.withdrawn for finish in fake.of("FinishSample")] == [True, True]


@pytest.mark.parametrize("granted", [False, True])
async def test_a_cancelled_wait_for_a_slot_gives_it_back_and_the_sample_goes_on(
    fake: FakeBatches, granted: bool
) -> None:
    wait = Blocked(pb.AcquireEnvironmentResponse())
    fake.script["AcquireEnvironment"].append(wait)
    if not granted:  # and the service still has it in its queue at the first look
        fake.script["ReleaseEnvironment"].extend([refuse(grpc.StatusCode.FAILED_PRECONDITION, "queued")] * 2)
    async with connected(fake) as batch, batch.sample("a") as sample:
        states = [pb.SAMPLE_STATE_QUEUED, pb.SAMPLE_STATE_ADMITTED]
        fake.always["SubmitSamples"] = lambda *_: pb.SubmitSamplesResponse(states=[states.pop(0)])
        waiting = asyncio.ensure_future(sample.environment().__aenter__())
        await begun(wait)
        await cancelled(waiting)
        await ended(wait)
        releases = fake.of("ReleaseEnvironment")
        assert [release.failed for release in releases] == [True] * (1 if granted else 2)
        async with sample.inference():
            pass
    assert [finish.withdrawn for finish in fake.of("FinishSample")] == [False]


async def test_a_turn_cancelled_as_it_begins_is_failed_before_the_next(fake: FakeBatches) -> None:
    starting = Blocked(pb.StartTurnResponse())
    fake.script["StartTurn"].append(starting)
    async with connected(fake) as batch, batch.sample("a") as sample:
        turn = asyncio.ensure_future(sample.inference().__aenter__())
        await begun(starting)
        await cancelled(turn)
        async with sample.inference():
            pass
    first, same, _ = fake.of("StartTurn")
    assert same == first
    assert [finish.failed for finish in fake.of("FinishTurn")] == [True, False]


async def test_a_block_cancelled_as_it_ends_has_ended_all_the_same(fake: FakeBatches) -> None:
    blocked = Blocked(pb.FinishTurnResponse())
    fake.script["FinishTurn"].append(blocked)
    finished = asyncio.Event()

    async def turn() -> None:
        async with sample.inference():
            pass
        finished.set()

    async with connected(fake) as batch, batch.sample("a") as sample:
        task = asyncio.ensure_future(turn())
        await begun(blocked)
        await cancelled(task)
        first, same = fake.of("FinishTurn")
        assert same == first
        async with sample.inference():
            pass
    assert not finished.is_set()
    assert [finish.withdrawn for finish in fake.of("FinishSample")] == [False]


async def test_the_error_of_a_block_is_not_hidden_by_a_service_that_refuses(fake: FakeBatches) -> None:
    fake.always["FinishTurn"] = refuse(grpc.StatusCode.FAILED_PRECONDITION, "no")
    fake.always["FinishSample"] = refuse(grpc.StatusCode.FAILED_PRECONDITION, "no")
    with pytest.raises(ZeroDivisionError):
        async with connected(fake) as batch, batch.sample("a") as sample, sample.inference():
            raise ZeroDivisionError
    assert [finish.failed for finish in fake.of("FinishTurn")] == [True]


async def test_samples_that_enter_at_once_are_submitted_together_and_claimed_in_order(
    fake: FakeBatches,
) -> None:
    names = [f"s{n:04}" + "x" * 300 for n in range(400)]
    async with connected(fake) as batch:
        entered = await asyncio.gather(*(batch.sample(name).__aenter__() for name in names))
        assert [sample.id for sample in entered] == names
    sent = fake.of("SubmitSamples")
    assert [name for message in sent for name in message.samples] == names
    assert 2 < len(sent) < 6
    assert max(message.ByteSize() for message in sent) < 64 * 1024


@pytest.mark.parametrize("state", ["FINISHED", "WITHDRAWN"])
async def test_a_sample_that_ended_before_is_told_and_not_claimed(fake: FakeBatches, state: str) -> None:
    fake.always["SubmitSamples"] = lambda *_: pb.SubmitSamplesResponse(
        states=[pb.SampleState.Value(f"SAMPLE_STATE_{state}")]
    )
    async with connected(fake) as batch:
        with pytest.raises(coresched.SampleEndedError, match="skip it") as raised:
            await batch.sample("a").__aenter__()
    assert (raised.value.sample, raised.value.state) == ("a", state.lower())
    assert fake.of("AwaitAdmission") == []
    assert fake.of("FinishSample") == []


async def test_a_sample_of_another_session_is_told(fake: FakeBatches) -> None:
    fake.always["AwaitAdmission"] = refuse(grpc.StatusCode.FAILED_PRECONDITION, "sample is claimed")
    async with connected(fake) as batch:
        with pytest.raises(coresched.SampleTakenError, match="admissions"):
            await batch.sample("a").__aenter__()
    assert fake.of("FinishSample") == []


@pytest.mark.parametrize("raises", [False, True])
async def test_a_stage_that_outlived_its_lease_is_told_unless_it_raised(
    fake: FakeBatches, raises: bool
) -> None:
    fake.always["ReleaseEnvironment"] = lambda *_: pb.ReleaseEnvironmentResponse(expired=True)

    async def stage() -> None:
        async with sample.environment(max_s=2.5):
            if raises:
                raise ZeroDivisionError

    async with connected(fake) as batch, batch.sample("a") as sample:
        with pytest.raises(ZeroDivisionError if raises else coresched.LeaseExpiredError):
            await stage()
    assert fake.of("AcquireEnvironment")[0].max_s == 2.5
    assert [finish.withdrawn for finish in fake.of("FinishSample")] == [False]


async def test_admissions_run_until_none_is_left(fake: FakeBatches) -> None:
    admitted = ["a", "b", ""]
    fake.always["AwaitAdmission"] = lambda *_: pb.AwaitAdmissionResponse(sample=admitted.pop(0))
    seen = []
    async with connected(fake) as batch:
        await batch.submit(["a", "b", "a"])
        async for sample in batch.admissions():
            async with sample, sample.inference() as turn:
                seen.append(turn.label)
    assert seen == ["a", "b"]
    assert [list(message.samples) for message in fake.of("SubmitSamples")] == [["a", "b"]]
    assert not any(request.HasField("sample") for request in fake.of("AwaitAdmission"))
    assert [finish.sample for finish in fake.of("FinishSample")] == ["a", "b"]


async def test_a_report_is_read_page_by_page(fake: FakeBatches) -> None:
    def page(request: Any, context: Any) -> Any:
        first = int(request.after or "0") + 1
        samples = [pb.SampleReport(sample=str(n), state=pb.SAMPLE_STATE_OPEN) for n in (first, first + 1)]
        return pb.GetReportResponse(
            progress=pb.BatchProgress(samples=6, open=4, waiting=2), samples=samples, more=first < 5
        )

    fake.always["GetReport"] = page
    async with connected(fake) as batch:
        with pytest.raises(RuntimeError, match="call refresh"):
            batch.report()
        report = await batch.refresh()
        assert batch.report() is report
    assert list(batch.report().samples) == list("123456")
    assert {times.state for times in report.samples.values()} == {"returned"}
    assert (report.totals.samples, report.totals.waiting, report.totals.returned) == (6, 2, 4)
    assert report.totals.makespan_s is None


async def test_a_report_that_cannot_be_had_ends_no_run(fake: FakeBatches) -> None:
    fake.always["GetReport"] = refuse(grpc.StatusCode.NOT_FOUND, "batch must be open")
    async with connected(fake) as batch, batch.sample("a"):
        pass
    with pytest.raises(RuntimeError, match="could not be fetched: batch must be open"):
        batch.report()


async def test_leaving_tells_whether_the_batch_stays_and_happens_once(fake: FakeBatches) -> None:
    async with connected(fake, keep_open=True) as batch:
        pass
    await batch.__aexit__(None, None, None)
    assert [leave.keep_open for leave in fake.of("LeaveBatch")] == [True]
    with pytest.raises(RuntimeError, match="entered once"):
        await batch.__aenter__()


async def test_a_run_that_raises_does_not_wait_for_a_service_that_is_gone(
    fake: FakeBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coresched.client.remote.async_batch.CLEANUP_S", 0.1)
    fake.always["LeaveBatch"] = UNAVAILABLE
    with pytest.raises(ZeroDivisionError):
        async with connected(fake) as batch:
            raise ZeroDivisionError
    with pytest.raises(RuntimeError, match="could not be fetched"):
        batch.report()


@pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="needs a fork")
async def test_a_fork_is_told_to_connect_anew(fake: FakeBatches, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(fake) as batch:
        own = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: own + 1)  # as its child would see it
        with pytest.raises(RuntimeError, match="connect anew"):
            batch.sample("a")
        monkeypatch.undo()
        async with batch.sample("a"):
            pass


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sample_concurrency": 0}, ValueError, "sample_concurrency must be at least 1"),
        ({"environment_policy": "random"}, ValueError, "environment_policy must be"),
        ({"band_s": 0}, ValueError, "band_s must be above 0"),
        ({"batch": ""}, ValueError, "batch must not be empty"),
        ({"grace_s": 0.5}, ValueError, "grace_s must be from 1 to 3600 seconds, got 0.5"),
    ],
)
def test_bad_options_are_named_before_anything_is_sent(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        coresched.connect("127.0.0.1:1", **{"batch": "b", "sample_concurrency": 1, **options})
