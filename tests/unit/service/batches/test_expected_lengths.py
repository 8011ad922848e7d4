"""A service's batch that admits the longest expected first."""

from batching import Bench, blocked, new_id, settled
from grpc import StatusCode

from coresched.v1 import batches_pb2 as pb

LONGEST_FIRST = pb.ADMISSION_POLICY_LONGEST_EXPECTED_FIRST


async def order_of(bench: Bench, session: str) -> str:
    """Each sample is taken up, admitted and finished, one after the other."""
    names = ""
    while name := (await settled(bench.wait(session))).sample:
        names += name
        bench.finish(session, name)
    return names


async def test_open_samples_are_taken_up_and_admitted_by_what_is_expected() -> None:
    bench = Bench()
    session = bench.open(c_s=1, admission_policy=LONGEST_FIRST)
    bench.submit_expected(session, a=1.0, b=5.0, c=-1.0, d=3.0)
    assert await order_of(bench, session) == "bcda"


async def test_claims_are_admitted_by_what_is_expected() -> None:
    bench = Bench()
    session = bench.open(c_s=1, admission_policy=LONGEST_FIRST)
    bench.submit_expected(session, first=9.0, short=1.0, long=5.0)
    await bench.admit(session, "first")
    short, long = bench.wait(session, "short"), bench.wait(session, "long")
    await blocked(short, long)
    bench.finish(session, "first")
    assert (await settled(long)).sample == "long"
    assert not short.done()
    bench.finish(session, "long")
    assert (await settled(short)).sample == "short"


async def test_a_restart_knows_what_was_expected() -> None:
    bench = Bench()
    session = bench.open(c_s=1, admission_policy=LONGEST_FIRST)
    bench.submit_expected(session, a=1.0, b=5.0, c=3.0)
    assert await order_of(bench.restarted(), session) == "bca"


async def test_submission_order_reads_no_expectation() -> None:
    bench = Bench()
    session = bench.open(c_s=1)
    bench.submit_expected(session, a=1.0, b=5.0)
    assert await order_of(bench, session) == "ab"


async def test_sessions_of_a_batch_ask_for_the_same_order() -> None:
    bench = Bench()
    bench.open(admission_policy=LONGEST_FIRST)
    with bench.refused(StatusCode.FAILED_PRECONDITION, "options", "admission_policy longest-expected-first"):
        bench.open()
    with bench.refused(StatusCode.INVALID_ARGUMENT, "admission_policy", "got 7"):
        bench.open("other", admission_policy=7)


async def test_expectations_that_are_none_are_refused() -> None:
    bench = Bench()
    session = bench.open(admission_policy=LONGEST_FIRST)
    with bench.refused(StatusCode.INVALID_ARGUMENT, "expected", "got 1"):
        bench.service.samples.submit_samples(
            pb.SubmitSamplesRequest(request_id=new_id(), session=session, samples=["a", "b"], expected=[1])
        )
    for length in (-2.0, float("nan"), float("inf")):
        with bench.refused(StatusCode.INVALID_ARGUMENT, "expected", "for 'a'"):
            bench.submit_expected(session, a=length)
    assert bench.submit(session, "a") == [pb.SAMPLE_STATE_OPEN]
