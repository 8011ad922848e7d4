"""Submitting samples and moving them on: turns, environment stages, ends; and what each step refuses."""

import pytest
from batching import Bench, blocked, new_id, settled
from grpc import StatusCode

from coresched.service.batches.limits import Limits
from coresched.v1 import batches_pb2 as pb

INVALID, ABSENT, UNREADY, FULL = (
    StatusCode.INVALID_ARGUMENT,
    StatusCode.NOT_FOUND,
    StatusCode.FAILED_PRECONDITION,
    StatusCode.RESOURCE_EXHAUSTED,
)


async def test_a_sample_goes_through_its_stages_and_its_times_are_seen() -> None:
    bench = Bench("w0")
    bench.clock.moment = 5.0
    session = bench.open()
    bench.clock.moment = 10.0
    assert bench.submit(session, "s") == [pb.SAMPLE_STATE_OPEN]
    bench.clock.moment = 11.0
    await bench.admit(session, "s")
    assert bench.start(session, "s") == "w0"
    assert (bench.in_flight(), bench.state("s")) == ({"w0": 1}, "inference")
    bench.clock.moment = 13.0
    assert bench.finish_turn(session, "s") == 2.0
    assert (bench.in_flight(), bench.state("s")) == ({"w0": 0}, "admitted")
    bench.start(session, "s")
    bench.clock.moment = 16.0
    assert bench.finish_turn(session, "s", failed=True) == 3.0
    assert (await settled(bench.acquire(session, "s"))).queue_s == 0.0
    assert bench.state("s") == "environment"
    bench.clock.moment = 20.0
    ended = bench.release(session, "s")
    assert (ended.environment_s, ended.expired) == (4.0, False)
    bench.finish(session, "s")
    report = bench.report()["s"]
    assert (report.submitted_at_s, report.admitted_at_s, report.ended_at_s) == (5.0, 6.0, 15.0)
    assert (report.turns, report.inference_s, report.failed_inference_s) == (1, 2.0, 3.0)
    assert (report.environment_stages, report.environment_s, report.admissions) == (1, 4.0, 1)
    assert (report.environment_requested_at_s, report.environment_started_at_s) == (11.0, 11.0)
    assert (report.environment_ended_at_s, report.admission_wait_s) == (15.0, 0.0)
    progress = bench.beat(session)
    assert (progress.finished, progress.turns, progress.environment_stages) == (1, 1, 1)
    assert (progress.inference_s, progress.failed_inference_s, progress.environment_s) == (2.0, 3.0, 4.0)
    assert (progress.makespan_s, progress.elapsed_s) == (9.0, 15.0)


def test_samples_known_already_stay_as_they_are() -> None:
    bench = Bench()
    session, other = bench.open(), bench.open()
    bench.submit(session, "a", "b")
    assert bench.submit(other, "b", "c", "a") == [pb.SAMPLE_STATE_OPEN] * 3
    assert list(bench.report()) == ["a", "b", "c"]
    assert bench.submit(session) == []


async def test_the_states_are_those_after_the_call() -> None:
    bench = Bench()
    session = bench.open(c_s=1)
    bench.submit(session, "a", "b", "c")
    await bench.admit(session, "a")
    waiting = bench.wait(session, "b")
    await blocked(waiting)
    assert bench.submit(session, "a", "b", "c", "d") == [
        pb.SAMPLE_STATE_ADMITTED,
        pb.SAMPLE_STATE_WAITING,
        pb.SAMPLE_STATE_OPEN,
        pb.SAMPLE_STATE_OPEN,
    ]
    waiting.cancel()


def test_what_is_no_list_of_samples_is_refused() -> None:
    bench = Bench(limits=Limits(samples=1002))
    session = bench.open()
    for names, said in (
        (["a", ""], "samples must not be empty"),
        (["x" * 513], "at most 512 bytes"),
        (["a", "b", "a"], "each sample once, got 'a' again"),
    ):
        with bench.refused(INVALID, "samples", said):
            bench.submit(session, *names)
    with bench.refused(FULL, "samples", "at most 1000 in a call, got 1001"):
        bench.submit(session, *map(str, range(1001)))
    bench.submit(session, *map(str, range(1000)))
    bench.submit(session, *map(str, range(999)), "one more")
    with bench.refused(FULL, "samples", "larger than 1002 samples, the most of one batch"):
        bench.submit(session, "0", "x", "y")
    bench.submit(session, "0", "x")


STEPS = {
    "start": lambda bench, session: bench.start(session, "s"),
    "finish_turn": lambda bench, session: bench.finish_turn(session, "s"),
    "release": lambda bench, session: bench.release(session, "s"),
    "finish": lambda bench, session: bench.finish(session, "s"),
}
STATES = {
    "waiting": ("waiting for admission", set()),
    "admitted": ("admitted, between stages", {"start", "finish"}),
    "inference": ("in an inference turn", {"finish_turn"}),
    "queued": ("queued for an environment slot", set()),
    "environment": ("in an environment stage", {"release"}),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("state", STATES)
async def test_each_step_in_each_state_is_taken_or_refused_whole(state: str, step: str) -> None:
    bench = Bench("w0")
    session = bench.open(c_s=1 if state == "waiting" else 2)
    bench.submit(session, "other", "s")
    await bench.admit(session, "other")
    if state == "waiting":
        wait = bench.wait(session, "s")
        await blocked(wait)
    else:
        await bench.admit(session, "s")
        if state == "inference":
            bench.start(session, "s")
        elif state in ("queued", "environment"):
            if state == "queued":
                await settled(bench.acquire(session, "other"))
            wait = bench.acquire(session, "s")
            await (blocked if state == "queued" else settled)(wait)
    assert bench.state("s") == state
    words, allowed = STATES[state]
    if step in allowed:
        STEPS[step](bench, session)
        assert bench.state("s") != state
    else:
        with bench.refused(UNREADY, "sample", f"sample 's' must be .*, it is {words}$"):
            STEPS[step](bench, session)
    bench.close()


@pytest.mark.parametrize("step", STEPS)
async def test_a_step_needs_a_sample_that_the_session_holds(step: str) -> None:
    bench = Bench()
    session, other = bench.open(), bench.open()
    with bench.refused(ABSENT, "sample", "must have been submitted to the batch, got 's', which was not"):
        STEPS[step](bench, session)
    bench.submit(session, "s")
    with bench.refused(UNREADY, "sample", "must be held by this session, it is open$"):
        STEPS[step](bench, session)
    await bench.admit(other, "s")
    with bench.refused(UNREADY, "sample", "must be held by this session, it is held by a session already"):
        STEPS[step](bench, session)
    bench.finish(other, "s")
    with bench.refused(UNREADY, "sample", "must be held by this session, it is finished$"):
        STEPS[step](bench, other)


@pytest.mark.parametrize("state", STATES)
async def test_a_sample_is_given_up_in_any_state_and_frees_what_it_holds(state: str) -> None:
    bench = Bench("w0")
    session = bench.open(c_s=2, c_e=1)
    bench.submit(session, "other", "third", "s")
    await bench.admit(session, "other")
    wait = None
    if state == "waiting":
        await bench.admit(session, "third")
        wait = bench.wait(session, "s")
        await blocked(wait)
    else:
        await bench.admit(session, "s")
        if state == "inference":
            bench.start(session, "s")
        elif state == "queued":
            await settled(bench.acquire(session, "other"))
            wait = bench.acquire(session, "s")
            await blocked(wait)
        elif state == "environment":
            await settled(bench.acquire(session, "s"))
    assert bench.state("s") == state
    bench.finish(session, "s", withdrawn=True)
    assert (bench.state("s"), bench.in_flight()) == ("withdrawn", {"w0": 0})
    progress = bench.beat(session)
    assert (progress.waiting, progress.environment_queued) == (0, 0)
    assert progress.admitted == (2 if state == "waiting" else 1)
    if wait is not None:
        with bench.refused(UNREADY, "sample", "given up by another call of its session"):
            await settled(wait)


async def test_a_turn_is_routed_where_the_service_has_workers_and_else_to_none() -> None:
    bench = Bench()
    session = bench.open()
    bench.submit(session, "s")
    await bench.admit(session, "s")
    assert bench.start(session, "s") == ""
    bench.finish_turn(session, "s")
    with bench.refused(ABSENT, "exclude", "must name known workers, got 'w9'"):
        bench.start(session, "s", "w9")
    bench.table.register("w0", 1.0)
    bench.table.register("w1", 1.0)
    first = bench.start(session, "s")
    bench.finish_turn(session, "s", failed=True)
    second = bench.start(session, "s", first)
    assert {first, second} == {"w0", "w1"}
    bench.finish_turn(session, "s")
    with bench.refused(UNREADY, "exclude", "must leave one routable worker, got all 2"):
        bench.start(session, "s", "w0", "w1")


async def test_every_step_sent_again_changes_nothing_and_gets_the_same_answer() -> None:
    bench = Bench("w0")
    session = bench.open()
    samples = bench.service.samples

    def twice(method: str, call: object) -> object:
        answer = getattr(samples, method)(call)
        facts = len(bench.log.facts)
        bench.clock.moment += 1
        assert getattr(samples, method)(call) == answer
        assert len(bench.log.facts) == facts
        return answer

    named = {"session": session, "sample": "s"}
    twice("submit_samples", pb.SubmitSamplesRequest(request_id=new_id(), session=session, samples=["s"]))
    await bench.admit(session, "s")
    twice("start_turn", pb.StartTurnRequest(request_id=new_id(), **named))
    assert bench.in_flight() == {"w0": 1}
    ended = twice("finish_turn", pb.FinishTurnRequest(request_id=new_id(), **named))
    assert ended == pb.FinishTurnResponse(inference_s=1.0)
    await settled(bench.acquire(session, "s"))
    twice("release_environment", pb.ReleaseEnvironmentRequest(request_id=new_id(), **named))
    twice("finish_sample", pb.FinishSampleRequest(request_id=new_id(), **named))
    assert bench.state("s") == "finished"
