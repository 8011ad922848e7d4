"""Opening, joining, leaving and closing batches, and what each refuses."""

import math

import pytest
from batching import Bench, blocked, new_id, settled, snapshot
from grpc import StatusCode

from coresched.service.batches.limits import Limits
from coresched.service.identity import Caller, act_as
from coresched.v1 import batches_pb2 as pb

INVALID, ABSENT, UNREADY, FULL, ABORTED = (
    StatusCode.INVALID_ARGUMENT,
    StatusCode.NOT_FOUND,
    StatusCode.FAILED_PRECONDITION,
    StatusCode.RESOURCE_EXHAUSTED,
    StatusCode.ABORTED,
)


def options(**changed: float) -> pb.BatchOptions:
    return pb.BatchOptions(**{"sample_concurrency": 2, "environment_concurrency": 1, **changed})  # type: ignore[arg-type]


def opening(batch: str = "b", request_id: str = "", **changed: float) -> pb.OpenBatchRequest:
    grace_s = changed.pop("grace_s", None)
    return pb.OpenBatchRequest(
        request_id=request_id or new_id(), batch=batch, options=options(**changed), grace_s=grace_s
    )


def test_the_first_session_opens_the_batch_and_the_next_joins_it() -> None:
    bench = Bench()
    first = bench.service.sessions.open_batch(opening())
    again = bench.service.sessions.open_batch(opening(grace_s=60.0))
    assert (first.opened, first.heartbeat_s, first.grace_s) == (True, 7.5, 30.0)
    assert (again.opened, again.heartbeat_s, again.grace_s) == (False, 15.0, 60.0)
    assert first.session != again.session
    assert len(first.session) >= 20  # cannot be guessed
    assert (first.progress.sessions, again.progress.sessions) == (1, 2)
    used = again.progress.options
    assert (used.sample_concurrency, used.environment_concurrency, used.band_s, used.bucket_s) == (
        2,
        1,
        30,
        1,
    )
    assert used.environment_policy == pb.ENVIRONMENT_POLICY_CAAS


@pytest.mark.parametrize(
    ("call", "field", "said"),
    [
        (opening(batch=""), "batch", "must not be empty"),
        (opening(batch="x" * 513), "batch", "at most 512 bytes"),
        (opening(sample_concurrency=0), "sample_concurrency", "at least 1, got 0"),
        (opening(environment_concurrency=0), "environment_concurrency", "at least 1, got 0"),
        (opening(band_s=0.0), "band_s", "above 0"),
        (opening(band_s=math.nan), "band_s", "finite"),
        (opening(band_s=5e-324), "band_s", "at least 1e-09"),
        (opening(bucket_s=-1.0), "bucket_s", "above 0"),
        (opening(environment_policy=7), "environment_policy", "got 7"),
        (opening(grace_s=0.9), "grace_s", "from 1 to 3600 seconds, got 0.9"),
        (opening(grace_s=3601), "grace_s", "from 1 to 3600"),
        (opening(grace_s=math.nan), "grace_s", "from 1 to 3600"),
        (pb.OpenBatchRequest(batch="b", options=options()), "request_id", "must not be empty"),
        (opening(request_id="x" * 129), "request_id", "at most 128 bytes"),
    ],
)
def test_what_can_never_be_accepted_is_refused(call: pb.OpenBatchRequest, field: str, said: str) -> None:
    bench = Bench()
    with bench.refused(INVALID, field, said):
        bench.service.sessions.open_batch(call)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sample_concurrency": 3}, "has sample_concurrency 2, not 3"),
        ({"environment_concurrency": 2}, "has environment_concurrency 1, not 2"),
        ({"environment_policy": 2}, "has policy caas, not fcfs"),
        ({"band_s": 31.0}, "has band_s 30.0, not 31.0"),
        ({"bucket_s": 2.0}, "has bucket_s 1.0, not 2.0"),
    ],
)
def test_a_batch_is_joined_with_its_own_options_only(changed: dict[str, float], said: str) -> None:
    bench = Bench()
    bench.open()
    bench.service.sessions.open_batch(opening(band_s=30.0, bucket_s=1.0, environment_policy=1))
    with bench.refused(UNREADY, "options", said):
        bench.service.sessions.open_batch(opening(**changed))


def test_a_call_sent_again_gets_the_same_answer_and_another_with_its_id_is_refused() -> None:
    bench = Bench()
    call = opening()
    answer = bench.service.sessions.open_batch(call)
    bench.clock.moment += 9
    before = snapshot(bench.ledger)
    assert bench.service.sessions.open_batch(call) == answer
    assert snapshot(bench.ledger) == before
    with bench.refused(INVALID, "request_id", "which another call had"):
        bench.service.sessions.open_batch(opening("other", call.request_id))
    with bench.refused(INVALID, "request_id", "which another call had"):
        bench.service.sessions.close_batch(pb.CloseBatchRequest(request_id=call.request_id, batch="b"))


async def test_what_a_leaving_session_holds_is_withdrawn_and_the_last_one_closes_the_batch() -> None:
    bench = Bench("w")
    one, other = bench.open(), bench.open()
    bench.submit(one, "s0", "s1", "s2", "s3")
    await bench.admit(one, "s0", "s1")
    waiting = bench.wait(other, "s2")
    bench.start(one, "s0")
    assert bench.leave(one).sessions == 1
    assert (await settled(waiting)).sample == "s2"
    assert [bench.state(f"s{n}") for n in range(4)] == ["withdrawn", "withdrawn", "admitted", "open"]
    assert bench.in_flight() == {"w": 0}
    with bench.refused(UNREADY, "session", "has ended: it left the batch"):
        bench.beat(one)
    progress = bench.leave(other)
    assert (progress.closed, progress.sessions, progress.withdrawn, progress.open) == (True, 0, 4, 0)
    assert bench.ledger.open_batches("") == []
    assert [bench.state(f"s{n}") for n in range(4)] == ["withdrawn"] * 4


def test_a_batch_can_outlive_its_last_session() -> None:
    bench = Bench()
    session = bench.open()
    bench.submit(session, "s0")
    assert not bench.leave(session, keep_open=True).closed
    again = bench.open()
    assert bench.beat(again).samples == 1


async def test_closing_ends_samples_sessions_and_waits() -> None:
    bench = Bench("w")
    session, other = bench.open(c_s=1), bench.open(c_s=1)
    bench.submit(session, "s0", "s1")
    await bench.admit(session, "s0")
    bench.start(session, "s0")
    named, idle = bench.wait(session, "s1"), bench.wait(other)
    await blocked(named, idle)
    progress = bench.close()
    assert (progress.closed, progress.withdrawn, progress.admitted, progress.sessions) == (True, 2, 0, 0)
    for wait in (named, idle):
        with bench.refused(ABORTED, "", "batch 'b' was closed while the call waited"):
            await settled(wait)
    assert bench.in_flight() == {"w": 0}
    with bench.refused(UNREADY, "session", "has ended: its batch was closed; open the batch again"):
        bench.submit(session, "s2")
    with bench.refused(UNREADY, "batch", "batch 'b' was closed"):
        bench.close()
    with bench.refused(ABSENT, "batch", "batch must be known, got 'c'"):
        bench.close("c")


def test_a_name_is_free_again_once_its_batch_was_closed() -> None:
    bench = Bench()
    bench.submit(bench.open(), "s0")
    bench.close()
    assert list(bench.report()) == ["s0"]
    session = bench.open(c_s=9)
    assert bench.beat(session).samples == 0
    assert bench.report() == {}
    assert [batch.key for batch in bench.ledger.open_batches("")] == [2]


def test_the_batches_closed_last_can_be_reported_and_are_then_forgotten_by_the_log_too() -> None:
    bench = Bench()
    sessions = []
    for number in range(18):
        sessions.append(bench.open(f"b{number}"))
        bench.close(f"b{number}")
    assert bench.log.forgotten == [1, 2]
    assert bench.report("b2") == {}
    with bench.refused(ABSENT, "batch", "got 'b1'"):
        bench.report("b1")
    with bench.refused(ABSENT, "session", "session must be known"):
        bench.beat(sessions[1])
    with bench.refused(UNREADY, "session", "its batch was closed"):
        bench.beat(sessions[2])
    assert snapshot(bench.restarted().ledger) == snapshot(bench.ledger)


def test_the_limits_name_themselves() -> None:
    bench = Bench(limits=Limits(open_batches=2, sessions=2))
    bench.open("b0")
    bench.open("b1")
    with bench.refused(FULL, "batch", "more than 2 open batches, the most of --max-open-batches"):
        bench.open("b2")
    bench.open("b1")
    with bench.refused(FULL, "batch", "has 2 sessions already, the most of one batch"):
        bench.open("b1")
    bench.close("b0")
    bench.open("b2")


def test_a_batch_whose_last_session_died_waits_for_the_next_until_its_room_is_needed() -> None:
    bench = Bench(limits=Limits(open_batches=3))
    for name, silent_at in (("second", 20.0), ("first", 10.0)):
        bench.submit(bench.open(name, grace_s=silent_at), "s0")
    bench.advance(10.0)
    bench.advance(10.0)
    assert bench.report("first").keys() == {"s0"}  # dead for long, and kept for a harness started again
    bench.open("third", grace_s=3600)
    bench.open("fourth", grace_s=3600)
    assert [batch.name for batch in bench.ledger.open_batches("")] == ["second", "third", "fourth"]
    assert bench.state("s0", "first") == "withdrawn"
    again = bench.open("second", grace_s=3600)  # gone on with
    assert bench.beat(again).samples == 1
    with bench.refused(FULL, "batch", "close another first, with `coresched batch close NAME`"):
        bench.open("fifth")
    assert snapshot(bench.restarted().ledger) == snapshot(bench.ledger)


def test_a_batch_that_was_kept_open_makes_room_for_none() -> None:
    bench = Bench(limits=Limits(open_batches=1))
    bench.leave(bench.open("kept"), keep_open=True)
    with bench.refused(FULL, "batch", "the most of --max-open-batches"):
        bench.open("other")
    bench.open("kept", grace_s=1)
    bench.advance(1.0)  # whoever went on with it died
    bench.open("other")


def test_how_long_a_batch_is_abandoned_goes_on_over_a_restart_and_ends_with_a_session() -> None:
    bench = Bench()
    session = bench.open(grace_s=10)
    assert not bench.beat(session).HasField("abandoned_s")
    bench.advance(10.0)
    bench.advance(5.0)

    def listed(bench: Bench) -> pb.BatchProgress:
        (batch,) = bench.service.reads.list_batches(pb.ListBatchesRequest()).batches
        return batch

    assert listed(bench).abandoned_s == 5.0
    assert listed(bench.restarted()).abandoned_s == 5.0
    again = bench.open()
    assert not bench.beat(again).HasField("abandoned_s")
    assert not bench.leave(again, keep_open=True).HasField("abandoned_s")


def test_no_batch_makes_room_where_that_would_not_be_enough() -> None:
    bench = Bench(limits=Limits(open_batches=3))
    bench.open("a", grace_s=3600)
    bench.open("b", grace_s=3600)
    bench.open("c", grace_s=1)
    bench.advance(1.0)
    fewer = Bench(limits=Limits(open_batches=2), clock=bench.clock, replayed=list(bench.log.facts))
    with fewer.refused(FULL, "batch", "more than 2 open batches"):
        fewer.open("d")


def test_a_batch_with_other_options_says_how_to_end_it() -> None:
    bench = Bench()
    bench.open(c_s=2)
    with bench.refused(
        UNREADY, "options", "which has sample_concurrency 2, not 3; .*coresched batch close NAME"
    ):
        bench.open(c_s=3)


def test_batches_and_sessions_of_another_tenant_are_not_known() -> None:
    bench = Bench(limits=Limits(open_batches=1))
    act_as(Caller("one", False))
    session = bench.open()
    act_as(Caller("two", False))
    for call in (bench.beat, bench.leave, bench.submit):
        with bench.refused(ABSENT, "session", "session must be known"):
            call(session)
    with bench.refused(ABSENT, "batch", "batch must be known"):
        bench.report()
    with bench.refused(ABSENT, "batch", "batch must be known"):
        bench.close()
    assert bench.service.reads.list_batches(pb.ListBatchesRequest()) == pb.ListBatchesResponse()
    other = bench.open(c_s=7)  # a name and a limit of its own
    assert bench.beat(other).options.sample_concurrency == 7
    act_as(Caller("one", False))
    assert bench.beat(session).options.sample_concurrency == 2
    act_as(Caller("", True))
