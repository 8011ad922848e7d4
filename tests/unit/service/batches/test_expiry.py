"""Sessions that fall silent, and the task that ends what ends by time."""

import asyncio

import pytest
from batching import Bench, blocked, new_id, settled
from grpc import StatusCode

from coresched.service.batches.servicer import BatchesService
from coresched.service.clock import ServiceClock
from coresched.service.table import RoutingTable
from coresched.v1 import batches_pb2 as pb

UNREADY = StatusCode.FAILED_PRECONDITION


async def test_what_a_silent_session_held_goes_back_and_is_admitted_before_what_never_was() -> None:
    bench = Bench("w0")
    silent, living = bench.open(c_s=3), bench.open(c_s=3)
    bench.submit(silent, *"abcdef")
    await bench.admit(silent, "a", "b")
    await bench.admit(living, "c")
    bench.start(silent, "a")
    bench.finish_turn(silent, "a")
    bench.start(silent, "a")
    await settled(bench.acquire(silent, "b"))
    slot, never, idle = bench.acquire(living, "c"), bench.wait(living, "d"), bench.wait(silent, "e")
    await blocked(slot, never, idle)
    bench.advance(29.0)
    bench.beat(living)
    await blocked(slot, never, idle)
    bench.advance(1.0)
    assert (await settled(slot)).queue_s == 30.0
    assert (await settled(never)).sample == "d"
    with bench.refused(UNREADY, "session", "has ended: it was silent for its grace period; open the batch"):
        await settled(idle)
    with bench.refused(UNREADY, "session", "it was silent"):
        bench.beat(silent)
    assert [bench.state(name) for name in "abcdef"] == [
        *("open", "open", "environment", "admitted", "open", "open")
    ]
    assert bench.in_flight() == {"w0": 0}
    fresh, behind = bench.wait(living), bench.wait(living, "f")
    answer = await settled(fresh)
    assert (answer.sample, answer.admissions) == ("a", 2)
    assert (bench.report()["a"].turns, bench.report()["a"].inference_s) == (0, 0.0)
    back = bench.wait(living, "b")
    await blocked(behind, back)
    bench.finish(living, "a")
    assert (await settled(back)).admissions == 2  # though it was claimed after "f"
    progress = bench.beat(living)
    assert (progress.readmissions, progress.sessions, progress.turns) == (2, 1, 1)
    bench.close()
    with pytest.raises(Exception, match="closed"):
        await settled(behind)


@pytest.mark.parametrize("call", ["beat", "submit", "refused", "again"])
async def test_every_call_of_a_session_shows_that_it_lives(call: str) -> None:
    bench = Bench()
    session = bench.open()
    again = pb.SubmitSamplesRequest(request_id=new_id(), session=session, samples=["a"])
    bench.service.samples.submit_samples(again)
    for _ in range(4):
        bench.advance(20.0)
        if call == "beat":
            bench.beat(session)
        elif call == "submit":
            bench.submit(session, "a")
        elif call == "refused":
            with bench.refused(StatusCode.NOT_FOUND, "sample", "got 'z'"):
                bench.start(session, "z")
        else:
            bench.service.samples.submit_samples(again)
    bench.advance(29.9)
    assert bench.ledger.sessions[session].ended == ""
    bench.advance(0.1)
    assert bench.ledger.sessions[session].ended != ""


def test_each_session_has_its_own_grace() -> None:
    bench = Bench()
    short, long = bench.open(grace_s=2.0), bench.open(grace_s=100.0)
    bench.advance(2.0)
    assert bench.ledger.sessions[short].ended
    bench.advance(97.9)
    assert not bench.ledger.sessions[long].ended
    assert not bench.ledger.named("", "b").closed_at  # type: ignore[union-attr]


async def test_the_task_sleeps_until_the_earliest_moment_and_wakes_for_an_earlier_one() -> None:
    service = BatchesService(RoutingTable({}))
    task = asyncio.ensure_future(service.run())
    try:
        options = pb.BatchOptions(sample_concurrency=1)
        opened = service.sessions.open_batch(
            pb.OpenBatchRequest(request_id=new_id(), batch="b", options=options, grace_s=60.0)
        )
        service.samples.submit_samples(
            pb.SubmitSamplesRequest(request_id=new_id(), session=opened.session, samples=["a"])
        )
        await service.waits.await_admission(
            pb.AwaitAdmissionRequest(request_id=new_id(), session=opened.session, sample="a")
        )
        await service.waits.acquire_environment(
            pb.AcquireEnvironmentRequest(request_id=new_id(), session=opened.session, sample="a", max_s=0.05)
        )
        expired = asyncio.Event()
        service.parts.recorder.listeners.append(lambda fact, effects: expired.set())
        await asyncio.wait_for(expired.wait(), 20)
        released = service.samples.release_environment(
            pb.ReleaseEnvironmentRequest(request_id=new_id(), session=opened.session, sample="a")
        )
        assert released.expired
        assert released.environment_s >= 0.05
    finally:
        task.cancel()


def test_the_clock_never_goes_back_and_begins_no_earlier_than_told() -> None:
    clock = ServiceClock()
    moments = [clock.now() for _ in range(1000)]
    assert moments == sorted(moments)
    later = ServiceClock(not_before=moments[-1] + 1e6)
    assert later.now() >= moments[-1] + 1e6
