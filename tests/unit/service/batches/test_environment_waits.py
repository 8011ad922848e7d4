"""AcquireEnvironment: the order of slots, waits that break off and go on, slots that return by themselves."""

import math

import pytest
from batching import Bench, blocked, cancelled, new_id, settled, ticks
from grpc import StatusCode

from coresched.v1 import batches_pb2 as pb

INVALID, UNREADY = StatusCode.INVALID_ARGUMENT, StatusCode.FAILED_PRECONDITION


async def ready(*samples: str, **options: float) -> tuple[Bench, str]:
    """A batch with one environment slot, and these samples admitted."""
    bench = Bench()
    session = bench.open(c_s=len(samples), **options)  # type: ignore[arg-type]
    bench.submit(session, *samples)
    await bench.admit(session, *samples)
    return bench, session


async def test_slots_are_granted_in_the_order_of_the_policy() -> None:
    bench, session = await ready("holder", "shallow", "deep", band_s=1000.0)
    bench.start(session, "deep")
    bench.finish_turn(session, "deep")
    await settled(bench.acquire(session, "holder"))
    shallow, deep = bench.acquire(session, "shallow"), bench.acquire(session, "deep")
    await blocked(shallow, deep)
    bench.clock.moment += 3
    bench.release(session, "holder")
    assert (await settled(deep)).queue_s == 3.0
    await blocked(shallow)
    bench.release(session, "deep", failed=True)
    assert (await settled(shallow)).queue_s == 3.0
    assert bench.report()["deep"].environment_stages == 0
    assert bench.beat(session).environment_queue_s == 6.0


@pytest.mark.parametrize("policy", [pb.ENVIRONMENT_POLICY_CAAS, pb.ENVIRONMENT_POLICY_FCFS])
async def test_a_wait_that_breaks_off_leaves_at_once_and_goes_on_as_of_its_first_request(policy: int) -> None:
    bench, session = await ready("holder", "a", "b", environment_policy=policy, band_s=1.0)
    await settled(bench.acquire(session, "holder"))
    request_id = new_id()
    first = bench.acquire(session, "a", None, request_id)
    await blocked(first)
    bench.clock.moment += 10
    await cancelled(first)
    assert (bench.state("a"), bench.beat(session).environment_queued) == ("admitted", 0)
    other = bench.acquire(session, "b")
    await blocked(other)
    bench.clock.moment += 10
    again = bench.acquire(session, "a", None, request_id)
    await blocked(again, other)
    bench.clock.moment += 1
    bench.release(session, "holder")
    assert (await settled(again)).queue_s == 21.0
    await blocked(other)
    assert bench.report()["a"].environment_requested_at_s == 0.0
    assert (await settled(bench.acquire(session, "a", None, request_id))) == again.result()
    other.cancel()


async def test_another_request_after_a_break_is_queued_anew() -> None:
    bench, session = await ready("holder", "a")
    await settled(bench.acquire(session, "holder"))
    request_id = new_id()
    await cancelled_after(bench, bench.acquire(session, "a", None, request_id), 5.0)
    with bench.refused(INVALID, "request_id", "which another call had"):
        await settled(bench.acquire(session, "a", 9.0, request_id))
    await cancelled_after(bench, bench.acquire(session, "a"), 5.0)
    bench.release(session, "holder")
    # That one came between, so that the first is not the wait that broke off last.
    assert (await settled(bench.acquire(session, "a", None, request_id))).queue_s == 0.0


async def test_a_wait_that_broke_off_does_not_go_on_after_the_next_turn() -> None:
    bench, session = await ready("holder", "a")
    await settled(bench.acquire(session, "holder"))
    request_id = new_id()
    await cancelled_after(bench, bench.acquire(session, "a", None, request_id), 5.0)
    bench.start(session, "a")
    bench.finish_turn(session, "a")
    bench.release(session, "holder")
    assert (await settled(bench.acquire(session, "a", None, request_id))).queue_s == 0.0


async def cancelled_after(bench: Bench, wait: object, seconds: float) -> None:
    await blocked(wait)  # type: ignore[arg-type]
    bench.clock.moment += seconds
    await cancelled(wait)  # type: ignore[arg-type]


async def test_a_slot_granted_in_the_moment_of_the_cancellation_stays_with_the_session() -> None:
    bench, session = await ready("holder", "a")
    await settled(bench.acquire(session, "holder"))
    request_id = new_id()
    wait = bench.acquire(session, "a", None, request_id)
    await blocked(wait)
    bench.release(session, "holder")
    wait.cancel()
    await ticks()
    assert wait.cancelled()
    assert bench.state("a") == "environment"
    assert (await settled(bench.acquire(session, "a", None, request_id))).queue_s == 0.0
    bench.release(session, "a")
    assert bench.state("a") == "admitted"


@pytest.mark.parametrize("max_s", [0.0, -1.0, math.nan, math.inf])
async def test_a_maximum_is_a_number_of_seconds(max_s: float) -> None:
    bench, session = await ready("a")
    with bench.refused(INVALID, "max_s", "max_s must be"):
        await settled(bench.acquire(session, "a", max_s))


async def test_a_stage_needs_a_sample_between_stages() -> None:
    bench, session = await ready("a")
    await settled(bench.acquire(session, "a"))
    with bench.refused(UNREADY, "sample", "must be admitted, between stages, it is in an environment stage"):
        await settled(bench.acquire(session, "a"))


async def test_a_slot_returns_at_its_maximum_and_its_session_is_told_once() -> None:
    bench, session = await ready("a", "b")
    await settled(bench.acquire(session, "a", max_s=5.0))
    wait = bench.acquire(session, "b", max_s=5.0)
    await blocked(wait)
    bench.advance(4.5)
    await blocked(wait)
    bench.advance(0.5)
    assert (await settled(wait)).queue_s == 5.0
    assert bench.state("a") == "admitted"
    ended = bench.release(session, "a")
    assert (ended.expired, ended.environment_s) == (True, 5.0)
    with bench.refused(UNREADY, "sample", "must be in an environment stage, it is admitted"):
        bench.release(session, "a")
    report = bench.report()["a"]
    assert (report.environment_stages, report.environment_s) == (0, 5.0)
    bench.advance(5.0)  # the maximum counts from the grant
    assert bench.beat(session).environment_running == 0


async def test_after_its_slot_expired_a_sample_goes_on_with_or_without_the_release() -> None:
    bench, session = await ready("a")
    await settled(bench.acquire(session, "a", max_s=5.0))
    bench.advance(6.0)
    bench.start(session, "a")
    ended = bench.release(session, "a", failed=True)  # late, and of the stage before
    assert (ended.expired, bench.state("a")) == (True, "inference")
    bench.finish_turn(session, "a")
    await settled(bench.acquire(session, "a", max_s=5.0))
    bench.advance(6.0)
    await settled(bench.acquire(session, "a", max_s=5.0))
    bench.advance(2.0)
    ended = bench.release(session, "a")
    assert (ended.expired, ended.environment_s) == (False, 2.0)
    bench.finish(session, "a")


async def test_a_maximum_is_of_its_own_stage() -> None:
    bench, session = await ready("a")
    for max_s, held_s in ((5.0, 1.0), (3.0, 1.0), (None, 9.0), (4.0, 3.5)):
        await settled(bench.acquire(session, "a", max_s))
        bench.advance(held_s)
        assert bench.state("a") == "environment"
        assert not bench.release(session, "a").expired
    assert len(bench.service.parts.expiry._heap) <= 3  # one of each sample, with one of the session
