"""AcquireResident and ReleaseResident: who holds a resident slot, in which order, and when it returns."""

import msgspec
import pytest
from batching import Bench, blocked, cancelled, new_id, settled, snapshot, ticks
from grpc import StatusCode

from coresched.service.batches import facts
from coresched.service.batches.facts import AnyFact
from coresched.service.refusal import RefusedError

INVALID, UNREADY = StatusCode.INVALID_ARGUMENT, StatusCode.FAILED_PRECONDITION


async def ready(*samples: str, residents: int | None = 1, grace_s: float = 30.0) -> tuple[Bench, str]:
    """A batch with so many resident slots and one environment slot, and these samples admitted."""
    bench = Bench()
    session = bench.open(c_s=len(samples), grace_s=grace_s, resident_concurrency=residents)
    bench.submit(session, *samples)
    await bench.admit(session, *samples)
    return bench, session


def counts(bench: Bench, session: str) -> tuple[int, int]:
    progress = bench.beat(session)
    return progress.resident_queued, progress.resident


async def test_slots_are_granted_in_the_order_of_arrival_however_deep_a_sample_is() -> None:
    bench, session = await ready("holder", "first", "deep")
    bench.start(session, "deep")
    bench.finish_turn(session, "deep")
    assert (await settled(bench.house(session, "holder"))).queue_s == 0.0
    first = bench.house(session, "first")
    await blocked(first)
    bench.clock.moment += 1
    deep = bench.house(session, "deep")
    await blocked(first, deep)
    assert (bench.state("first"), counts(bench, session)) == ("resident_queued", (2, 1))
    bench.clock.moment += 3
    assert bench.unhouse(session, "holder") == 4.0
    assert (await settled(first)).queue_s == 4.0
    await blocked(deep)
    bench.finish(session, "first")  # with the slot
    assert (await settled(deep)).queue_s == 3.0
    progress = bench.beat(session)
    assert (progress.resident_wait_s, progress.resident_s) == (7.0, 4.0)
    assert progress.options.resident_concurrency == 1
    report = bench.report()["deep"]
    assert (report.resident_wait_s, report.resident_requested_at_s, report.resident_started_at_s) == (3, 1, 4)
    assert not report.HasField("resident_ended_at_s")


async def test_it_is_held_over_turns_and_stages() -> None:
    bench, session = await ready("a", "b")
    await settled(bench.house(session, "a"))
    bench.start(session, "a")
    other = bench.house(session, "b")
    await blocked(other)
    bench.finish_turn(session, "a")
    await settled(bench.acquire(session, "a", max_s=5.0))
    bench.clock.moment += 4
    bench.beat(session)
    bench.advance(2)  # the environment slot returns by itself, the resident one does not
    assert (bench.state("a"), counts(bench, session)) == ("admitted", (1, 1))
    await blocked(other)
    assert bench.release(session, "a").expired
    assert bench.unhouse(session, "a") == 6.0
    await settled(other)


async def test_without_a_cap_all_are_resident() -> None:
    bench, session = await ready("a", "b", residents=None)
    for sample in "ab":
        await settled(bench.house(session, sample))
    assert counts(bench, session) == (0, 2)
    assert not bench.beat(session).options.HasField("resident_concurrency")


async def test_it_is_asked_for_between_stages_and_once() -> None:
    bench, session = await ready("a", "b")
    bench.start(session, "a")
    with bench.refused(UNREADY, "sample", "between stages, it is in an inference turn"):
        await bench.house(session, "a")
    bench.finish_turn(session, "a")
    await settled(bench.acquire(session, "a"))
    with bench.refused(UNREADY, "sample", "between stages, it is in an environment stage"):
        await bench.house(session, "a")
    waiting = bench.acquire(session, "b")
    await blocked(waiting)
    with bench.refused(UNREADY, "sample", "between stages, it is queued for an environment slot"):
        await bench.house(session, "b")
    bench.release(session, "a")
    await settled(bench.house(session, "a"))
    with bench.refused(UNREADY, "sample", "'a' holds a resident slot already"):
        await bench.house(session, "a")
    await settled(waiting)


async def test_while_it_waits_no_stage_begins() -> None:
    bench, session = await ready("a", "b")
    await settled(bench.house(session, "a"))
    waiting = bench.house(session, "b")
    await blocked(waiting)
    with bench.refused(UNREADY, "sample", "it is queued for a resident slot"):
        bench.start(session, "b")
    with bench.refused(UNREADY, "sample", "it is queued for a resident slot"):
        bench.finish(session, "b")
    await cancelled(waiting)
    bench.start(session, "b")


async def test_what_is_not_held_or_in_use_is_not_released() -> None:
    bench, session = await ready("a", "b")
    for failed in (False, True):
        with bench.refused(UNREADY, "sample", "must hold a resident slot, it has none"):
            bench.unhouse(session, "a", failed)
    await settled(bench.house(session, "a"))
    bench.start(session, "a")
    with bench.refused(UNREADY, "sample", "between stages, it is in an inference turn"):
        bench.unhouse(session, "a")
    waiting = bench.house(session, "b")
    await blocked(waiting)
    with bench.refused(UNREADY, "sample", "must hold a resident slot, it has none and is queued for a resid"):
        bench.unhouse(session, "b")
    bench.unhouse(session, "a", failed=True)  # while the turn goes on
    await settled(waiting)
    assert bench.state("a") == "inference"
    bench.finish_turn(session, "a")


async def test_a_wait_that_breaks_off_leaves_at_once_and_goes_on_as_of_its_first_request() -> None:
    bench, session = await ready("holder", "a", "b")
    await settled(bench.house(session, "holder"))
    request_id = new_id()
    first = bench.house(session, "a", request_id)
    await blocked(first)
    bench.clock.moment += 10
    await cancelled(first)
    assert (bench.state("a"), counts(bench, session)) == ("admitted", (0, 1))
    other = bench.house(session, "b")
    await blocked(other)
    again = bench.house(session, "a", request_id)
    await blocked(again, other)
    with bench.refused(INVALID, "request_id", "another call had"):
        await bench.house(session, "holder", request_id)
    bench.unhouse(session, "holder")
    assert (await settled(again)).queue_s == 10.0
    await blocked(other)
    assert (await settled(bench.house(session, "a", request_id))) == again.result()
    assert counts(bench, session) == (1, 1)
    other.cancel()
    await ticks()


async def test_calls_sent_again_get_the_same_answer() -> None:
    bench, session = await ready("a")
    request_id, release_id = new_id(), new_id()
    answer = await settled(bench.house(session, "a", request_id))
    bench.clock.moment += 2
    assert bench.unhouse(session, "a", request_id=release_id) == 2.0
    facts_before = len(bench.log.facts)
    for life in (bench, bench.restarted()):
        assert await settled(life.house(session, "a", request_id)) == answer
        assert life.unhouse(session, "a", request_id=release_id) == 2.0
        assert (len(life.log.facts), counts(life, session)) == (facts_before, (0, 0))


async def test_a_wait_is_given_up_by_a_release_that_says_so() -> None:
    bench, session = await ready("a", "b")
    await settled(bench.house(session, "a"))
    waiting = bench.house(session, "b")
    await blocked(waiting)
    assert bench.unhouse(session, "b", failed=True) == 0.0
    with pytest.raises(RefusedError, match="'b' was given up by another call"):
        await settled(waiting)
    assert counts(bench, session) == (0, 1)
    bench.finish(session, "b")


@pytest.mark.parametrize("ending", ["withdraw", "leave", "silence", "close"])
async def test_slots_and_places_return_however_the_sample_ends(ending: str) -> None:
    bench, session = await ready("held", "queued", "next", grace_s=10.0)
    other = bench.open(c_s=3, resident_concurrency=1)
    bench.finish(session, "next", withdrawn=True)
    bench.submit(other, "last")
    await bench.admit(other, "last")
    await settled(bench.house(session, "held"))
    queued = bench.house(session, "queued")
    last = bench.house(other, "last")
    await blocked(queued, last)
    if ending == "withdraw":
        bench.finish(session, "queued", withdrawn=True)
        bench.start(session, "held")
        bench.finish(session, "held", withdrawn=True)
    elif ending == "leave":
        bench.leave(session)
    elif ending == "silence":
        bench.clock.moment += 9
        bench.beat(other)
        bench.advance(1)
        assert bench.state("held") == bench.state("queued") == "open"
    else:
        bench.close()
        assert bench.report()["last"].resident_s == 0.0
        await ticks()
        assert isinstance(last.exception(), RefusedError)
        return
    assert (await settled(last)).queue_s == bench.beat(other).elapsed_s
    assert counts(bench, other) == (0, 1)
    with pytest.raises(RefusedError):
        await settled(queued)


async def test_a_sample_that_went_back_begins_without_a_slot() -> None:
    bench, session = await ready("a", grace_s=10.0)
    await settled(bench.house(session, "a"))
    bench.advance(10.0)
    other = bench.open(c_s=1, resident_concurrency=1)
    await bench.admit(other, "a")
    assert counts(bench, other) == (0, 0)
    assert (await settled(bench.house(other, "a"))).queue_s == 0.0
    assert bench.report()["a"].resident_s == 0.0
    assert bench.beat(other).resident_s == 10.0


async def test_a_restart_keeps_slots_and_places() -> None:
    bench, session = await ready("a", "b", "c")
    await settled(bench.house(session, "a"))
    request_id = new_id()
    waits = [bench.house(session, "b", request_id), bench.house(session, "c")]
    await blocked(*waits)
    bench.start(session, "a")
    bench.clock.moment += 5
    again = bench.restarted()
    assert snapshot(again.ledger) == snapshot(bench.ledger)
    attached = again.house(session, "b", request_id)
    await blocked(attached)
    again.advance(29)
    again.beat(session)
    again.advance(1)  # nobody came back for the wait of c
    assert counts(again, session) == (1, 1)
    assert again.unhouse(session, "a", failed=True) == 35.0
    assert (await settled(attached)).queue_s == 35.0
    for wait in waits:
        wait.cancel()


def test_sessions_must_ask_for_the_same_number() -> None:
    bench = Bench()
    bench.open(resident_concurrency=3)
    with bench.refused(UNREADY, "options", "which has resident_concurrency 3, not None"):
        bench.open()
    with bench.refused(INVALID, "resident_concurrency", "at least 1, got 0"):
        bench.open("other", resident_concurrency=0)


async def test_the_facts_of_before_there_were_resident_slots_still_open_a_batch() -> None:
    old = (
        b'{"type":"BatchOpened","at":1.0,"key":1,"tenant":"","batch":"b","sample_concurrency":2,'
        b'"environment_concurrency":1,"policy":"caas","band_s":30.0,"bucket_s":1.0}'
    )
    fact = msgspec.json.decode(old, type=AnyFact)
    assert isinstance(fact, facts.BatchOpened)
    bench = Bench(replayed=[fact])
    session = bench.open()
    assert not bench.beat(session).options.HasField("resident_concurrency")
    # And a batch without a cap is written as it was then, so that an older service can read it.
    assert msgspec.json.encode(fact) == old
