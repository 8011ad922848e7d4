"""Facts applied again give the state again; what was alive goes on."""

from batching import Bench, MemoryLog, blocked, cancelled, new_id, settled, snapshot, ticks
from grpc import StatusCode

from coresched.service.batches.log import JournalError
from coresched.service.identity import Caller, act_as
from coresched.v1 import batches_pb2 as pb

UNREADY = StatusCode.FAILED_PRECONDITION


async def busy() -> tuple[Bench, str]:
    """A batch with a sample in each state."""
    bench = Bench("w0", "w1")
    session = bench.open(c_s=4, c_e=1)
    bench.submit(session, *"abcdefg")
    await bench.admit(session, *"abcd")
    bench.start(session, "a")
    await settled(bench.acquire(session, "b", max_s=50.0))
    return bench, session


async def test_the_state_is_that_of_the_facts() -> None:
    bench, session = await busy()
    waits = [bench.acquire(session, "c"), bench.wait(session, "e")]
    await blocked(*waits)
    bench.finish(session, "d")
    again = bench.restarted("w0", "w1")
    assert snapshot(again.ledger) == snapshot(bench.ledger)
    bench.advance(40.0)
    assert snapshot(bench.restarted().ledger) == snapshot(bench.ledger)
    bench.close()
    assert snapshot(bench.restarted().ledger) == snapshot(bench.ledger)
    for wait in waits:
        wait.cancel()


async def test_sessions_have_a_fresh_grace_period_and_turns_are_in_flight_again() -> None:
    bench, session = await busy()
    bench.clock.moment += 1000.0
    again = bench.restarted("w0", "w1")
    assert again.in_flight() == bench.in_flight()
    again.advance(29.0)
    again.finish_turn(session, "a")
    assert sum(again.in_flight().values()) == 0
    again.advance(29.0)
    assert not again.ledger.sessions[session].ended
    again.advance(1.0)
    assert again.ledger.sessions[session].ended


async def test_a_worker_that_is_not_known_any_more_has_nothing_in_flight() -> None:
    bench, session = await busy()
    again = bench.restarted("w2")
    assert again.in_flight() == {"w2": 0}
    again.finish_turn(session, "a")
    assert again.start(session, "a") == "w2"


async def test_a_slot_has_its_maximum_still() -> None:
    bench, session = await busy()
    bench.clock.moment += 49.0
    again = bench.restarted()
    again.advance(0.5)
    assert again.state("b") == "environment"
    again.beat(session)
    again.advance(0.5)
    assert again.state("b") == "admitted"
    assert again.release(session, "b").expired


async def test_waits_are_attached_to_by_their_calls() -> None:
    bench, session = await busy()
    admission, slot = new_id(), new_id()
    waits = [bench.wait(session, None, admission), bench.acquire(session, "c", None, slot)]
    await blocked(*waits)
    bench.clock.moment += 5.0
    again = bench.restarted()
    waits = [again.wait(session, None, admission), again.acquire(session, "c", None, slot)]
    await blocked(*waits)
    again.release(session, "b")
    again.finish(session, "b")
    assert (await settled(waits[0])).wait_s == (await settled(waits[1])).queue_s == 5.0


async def test_waits_that_nobody_comes_back_for_are_given_up_after_the_grace_period() -> None:
    bench, session = await busy()
    waits = [bench.wait(session, "e"), bench.acquire(session, "c")]
    await blocked(*waits)
    again = bench.restarted()
    again.advance(29.0)
    again.beat(session)
    assert (again.state("e"), again.state("c")) == ("waiting", "queued")
    attached = again.wait(session, "e", request_id="another")
    await blocked(attached)
    again.advance(1.0)
    assert (again.state("e"), again.state("c")) == ("waiting", "admitted")
    await cancelled(attached)
    for wait in waits:
        wait.cancel()


async def test_calls_sent_again_after_a_restart_get_the_same_answers() -> None:
    bench = Bench("w0")
    clock, service = bench.clock, bench.service
    opening = pb.OpenBatchRequest(
        request_id=new_id(),
        batch="b",
        options=pb.BatchOptions(sample_concurrency=1, environment_concurrency=1),
    )
    answers = []

    async def call(method: object, request: object) -> None:
        clock.moment += 1.5
        answer = method(request)  # type: ignore[operator]
        answers.append((method, request, await answer if hasattr(answer, "__await__") else answer))

    await call(service.sessions.open_batch, opening)
    session = answers[0][2].session
    named = {"session": session, "sample": "s"}
    await call(
        service.samples.submit_samples,
        pb.SubmitSamplesRequest(request_id=new_id(), session=session, samples=["s", "t"]),
    )
    await call(service.waits.await_admission, pb.AwaitAdmissionRequest(request_id=new_id(), session=session))
    await call(service.samples.start_turn, pb.StartTurnRequest(request_id=new_id(), **named))
    await call(service.samples.finish_turn, pb.FinishTurnRequest(request_id=new_id(), **named))
    await call(
        service.waits.acquire_environment,
        pb.AcquireEnvironmentRequest(request_id=new_id(), max_s=9.0, **named),
    )
    bench.advance(10.0)
    await call(
        service.samples.release_environment, pb.ReleaseEnvironmentRequest(request_id=new_id(), **named)
    )
    assert answers[-1][2].expired
    await call(service.samples.finish_sample, pb.FinishSampleRequest(request_id=new_id(), **named))
    await call(
        service.sessions.leave_batch,
        pb.LeaveBatchRequest(request_id=new_id(), session=session, keep_open=True),
    )
    await call(service.sessions.close_batch, pb.CloseBatchRequest(request_id=new_id(), batch="b"))
    again = bench.restarted("w0")
    facts = len(again.log.facts)
    for method, request, answer in answers:
        part = type(method.__self__)
        owner = next(value for value in vars(again.service).values() if type(value) is part)
        repeated = getattr(owner, method.__name__)(request)
        assert (await repeated if hasattr(repeated, "__await__") else repeated) == answer
    assert len(again.log.facts) == facts


async def test_a_wait_taken_over_before_the_restart_belongs_to_the_later_call() -> None:
    bench, session = await busy()
    later = new_id()
    first = bench.wait(session, "e")
    await blocked(first)
    second = bench.wait(session, "e", later)
    await ticks()
    assert first.done()
    assert first.exception() is not None
    again = bench.restarted()
    resumed = again.wait(session, "e", later)
    await blocked(resumed)
    again.finish(session, "d")
    assert (await settled(resumed)).sample == "e"
    second.cancel()


async def test_an_environment_wait_that_broke_off_before_the_restart_goes_on_after_it() -> None:
    bench, session = await busy()
    request_id = new_id()
    wait = bench.acquire(session, "c", None, request_id)
    await blocked(wait)
    bench.clock.moment += 4.0
    await cancelled(wait)
    again = bench.restarted()
    again.release(session, "b")
    assert (await settled(again.acquire(session, "c", None, request_id))).queue_s == 4.0


async def test_answers_after_a_restart_are_those_of_the_tenant() -> None:
    bench = Bench()
    call = pb.OpenBatchRequest(request_id=new_id(), batch="b", options=pb.BatchOptions(sample_concurrency=1))
    act_as(Caller("one", False))
    mine = bench.service.sessions.open_batch(call)
    act_as(Caller("two", False))
    other = bench.service.sessions.open_batch(call)
    assert mine.session != other.session
    act_as(Caller("", True))
    again = bench.restarted()  # as no tenant's call
    act_as(Caller("one", False))
    assert again.service.sessions.open_batch(call) == mine
    act_as(Caller("two", False))
    assert again.service.sessions.open_batch(call) == other
    act_as(Caller("", True))


async def test_what_the_journal_cannot_keep_is_not_answered() -> None:
    class FullDisk(MemoryLog):
        full = True

        async def committed(self, sequence: int) -> None:
            if self.full:
                raise JournalError("no space left on device")

    bench = Bench()
    bench.log = bench.service.parts.recorder._log = FullDisk()
    bench.open()
    committed = bench.service.parts.recorder.committed
    with bench.refused(
        StatusCode.UNAVAILABLE, "", "journal cannot be written: no space left on device; send the call again"
    ):
        await committed()
    bench.log.full = False
    await committed()
