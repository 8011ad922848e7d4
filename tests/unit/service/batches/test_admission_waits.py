"""AwaitAdmission: who is admitted when, what a retry gets, and how waits end."""

import asyncio

import pytest
from batching import Bench, blocked, cancelled, new_id, settled, ticks
from grpc import StatusCode

from coresched.service.batches.limits import Limits
from coresched.v1 import batches_pb2 as pb

INVALID, ABSENT, UNREADY, FULL, ABORTED = (
    StatusCode.INVALID_ARGUMENT,
    StatusCode.NOT_FOUND,
    StatusCode.FAILED_PRECONDITION,
    StatusCode.RESOURCE_EXHAUSTED,
    StatusCode.ABORTED,
)


async def full(*samples: str) -> tuple[Bench, str]:
    """A batch with one sample slot, held by "held", and these samples open."""
    bench = Bench()
    session = bench.open(c_s=1)
    bench.submit(session, "held", *samples)
    await bench.admit(session, "held")
    return bench, session


async def test_samples_are_admitted_in_the_order_of_claims() -> None:
    bench, session = await full("a", "b", "c")
    third, second, first = (bench.wait(session, name) for name in ("c", "b", "a"))
    await blocked(first, second, third)
    bench.clock.moment += 5
    for wait, name, before in ((third, "c", "held"), (second, "b", "c"), (first, "a", "b")):
        bench.finish(session, before)
        answer = await settled(wait)
        assert (answer.sample, answer.wait_s, answer.admissions) == (name, 5.0, 1)


async def test_without_a_name_the_first_open_sample_is_claimed() -> None:
    bench = Bench()
    session = bench.open(c_s=9)
    bench.submit(session, "a", "b", "c")
    await bench.admit(session, "b")
    assert [(await settled(bench.wait(session))).sample for _ in range(2)] == ["a", "c"]


async def test_who_asks_for_any_sample_waits_for_the_next_that_opens_first_come_first_served() -> None:
    bench = Bench()
    session, other = bench.open(c_s=9), bench.open(c_s=9)
    first, second, third = bench.wait(session), bench.wait(other), bench.wait(session)
    await blocked(first, second, third)  # a batch without samples is not at its end
    await cancelled(second)
    bench.submit(other, "a")
    assert (await settled(first)).sample == "a"
    await blocked(third)
    bench.submit(other, "b")
    assert (await settled(third)).sample == "b"
    fourth, fifth = bench.wait(session), bench.wait(other)
    await blocked(fourth, fifth)
    bench.finish(session, "a")
    await blocked(fourth, fifth)
    bench.finish(session, "b", withdrawn=True)
    assert (await settled(fourth)).sample == (await settled(fifth)).sample == ""
    assert (await settled(bench.wait(other))).sample == ""
    bench.submit(other, "c")
    assert (await settled(bench.wait(session))).sample == "c"


async def test_a_wait_that_is_cancelled_gives_its_place_up_at_once() -> None:
    bench, session = await full("a", "b")
    first, second = bench.wait(session, "a"), bench.wait(session, "b")
    await blocked(first, second)
    await cancelled(first)
    assert (bench.state("a"), bench.beat(session).waiting) == ("open", 1)
    bench.finish(session, "held")
    assert (await settled(second)).sample == "b"
    again = bench.wait(session, "a")
    await blocked(again)
    bench.finish(session, "b")
    assert (await settled(again)).admissions == 1


async def test_a_sample_given_back_goes_to_who_waits_for_any() -> None:
    bench, session = await full("a")
    named = bench.wait(session, "a")
    await blocked(named)
    idle = bench.wait(bench.open(c_s=1))
    await blocked(idle)
    await cancelled(named)
    await blocked(idle)
    bench.finish(session, "held")
    assert (await settled(idle)).sample == "a"


async def test_a_wait_lives_as_long_as_one_of_the_calls_that_sent_it() -> None:
    bench, session = await full("a")
    request_id = new_id()
    one, two = (bench.wait(session, "a", request_id) for _ in range(2))
    await blocked(one, two)
    await cancelled(one)
    await blocked(two)
    assert bench.state("a") == "waiting"
    three = bench.wait(session, "a", request_id)
    await blocked(two, three)
    bench.finish(session, "held")
    assert await settled(two) == await settled(three)
    facts = len(bench.log.facts)
    bench.start(session, "a")
    assert (await settled(bench.wait(session, "a", request_id))) == two.result()
    assert len(bench.log.facts) == facts + 1


async def test_a_wait_for_any_keeps_its_sample_when_it_is_sent_again() -> None:
    bench, session = await full("a", "b")
    request_id = new_id()
    wait = bench.wait(session, None, request_id)
    await blocked(wait)
    assert bench.state("a") == "waiting"
    again = bench.wait(session, None, request_id)
    await cancelled(wait)
    bench.finish(session, "held")
    assert (await settled(again)).sample == "a"
    assert (await settled(bench.wait(session, None, request_id))).sample == "a"
    assert bench.state("b") == "open"


@pytest.mark.parametrize("first", ["admission", "cancellation"])
async def test_admitted_in_the_moment_of_the_cancellation_it_stays_with_the_session(first: str) -> None:
    bench, session = await full("a", "b")
    request_id = new_id()
    wait = bench.wait(session, "a", request_id)
    await blocked(wait)
    if first == "admission":
        bench.finish(session, "held")
        wait.cancel()
    else:
        wait.cancel()  # the task has not run since: the wait is there still
        bench.finish(session, "held")
    await ticks()
    assert wait.cancelled()
    assert bench.state("a") == "admitted"
    assert (await settled(bench.wait(session, "a", request_id))).sample == "a"
    bench.finish(session, "a")


async def test_a_sample_is_claimed_once() -> None:
    bench, session = await full("a")
    other = bench.open(c_s=1)
    wait = bench.wait(session, "a")
    await blocked(wait)
    with bench.refused(UNREADY, "sample", "sample 'a' must be open, it is held by a session already"):
        await settled(bench.wait(other, "a"))
    with bench.refused(UNREADY, "sample", "sample 'held' must be open, it is held by a session already"):
        await settled(bench.wait(other, "held"))
    bench.finish(session, "held")
    with bench.refused(UNREADY, "sample", "sample 'held' must be open, it is finished"):
        await settled(bench.wait(session, "held"))
    bench.finish(session, "a", withdrawn=True)
    with bench.refused(UNREADY, "sample", "sample 'a' must be open, it is withdrawn"):
        await settled(bench.wait(session, "a"))
    with bench.refused(ABSENT, "sample", "must have been submitted to the batch, got 'z'"):
        await settled(bench.wait(session, "z"))
    with bench.refused(INVALID, "sample", "must not be empty"):
        await settled(bench.wait(session, ""))


async def test_the_holder_takes_its_own_wait_over_with_another_request() -> None:
    bench, session = await full("a", "b")
    first, behind = bench.wait(session, "a"), bench.wait(session, "b")
    await blocked(first, behind)
    second = bench.wait(session, "a")
    await ticks()
    with bench.refused(ABORTED, "sample", "waited for by a later call of the same session"):
        await settled(first)
    await blocked(second, behind)
    bench.finish(session, "held")
    assert (await settled(second)).sample == "a"  # in the place of the first
    await cancelled(behind)


async def test_the_holder_gets_what_it_did_not_begin_with_again_and_nothing_else() -> None:
    bench, session = await full("a")
    facts = len(bench.log.facts)
    request_id = new_id()
    answer = await settled(bench.wait(session, "held", request_id))
    assert (answer.sample, answer.admissions) == ("held", 1)
    assert len(bench.log.facts) == facts + 1
    restarted = bench.restarted()
    assert await settled(restarted.wait(session, "held", request_id)) == answer
    bench.start(session, "held")
    bench.finish_turn(session, "held")
    with bench.refused(UNREADY, "sample", "held by a session already, and admitted, between stages"):
        await settled(bench.wait(session, "held"))


async def test_an_id_of_a_wait_is_no_other_calls() -> None:
    bench, session = await full("a", "b")
    request_id = new_id()
    wait = bench.wait(session, "a", request_id)
    await blocked(wait)
    with bench.refused(INVALID, "request_id", "which another call had"):
        await settled(bench.wait(session, "b", request_id))
    with bench.refused(INVALID, "request_id", "which another call had"):
        await settled(bench.acquire(session, "held", None, request_id))
    with bench.refused(INVALID, "request_id", "which another call had"):
        bench.service.samples.start_turn(
            pb.StartTurnRequest(request_id=request_id, session=session, sample="held")
        )
    await cancelled(wait)


async def test_so_many_calls_may_wait_and_no_more() -> None:
    bench = Bench(limits=Limits(waiters=2))
    session = bench.open(c_s=1)
    bench.submit(session, "held", "a", "b")
    await bench.admit(session, "held")
    first, second = bench.wait(session, "a"), bench.wait(session, "b")
    await blocked(first, second)
    for call in (bench.wait(session), bench.acquire(session, "held")):
        with bench.refused(FULL, "", "2 calls wait already, the most of --max-waiters"):
            await settled(call)
    await cancelled(first)
    third = bench.wait(session, "a")
    await blocked(second, third)
    bench.service.stop_waiting()
    assert bench.service.parts.waits.blocked == 2
    await ticks()
    assert bench.service.parts.waits.blocked == 0
    for call in (second, third, bench.wait(session)):
        with bench.refused(StatusCode.UNAVAILABLE, "", "^stopping; send the call again$"):
            await settled(call)
    assert bench.state("a") == bench.state("b") == "waiting"  # for the next life of the service
    bench.start(session, "held")


async def test_thousands_who_wait_for_any_are_served_in_their_order() -> None:
    bench = Bench()
    session = bench.open(c_s=3000, c_e=None)
    waits = [bench.wait(session) for _ in range(2500)]
    await blocked(*waits)
    for first in range(0, 2500, 500):
        bench.submit(session, *(f"s{n}" for n in range(first, first + 500)))
    answers = await asyncio.gather(*waits)
    assert [answer.sample for answer in answers] == [f"s{n}" for n in range(2500)]
