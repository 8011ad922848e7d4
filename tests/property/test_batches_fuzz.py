"""Any message to any call: an answer, or a refusal that changes nothing."""

import asyncio
from typing import Any

import grpc
import pytest
from batching import Bench, settled, snapshot, ticks
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from coresched.service.refusal import RefusedError
from coresched.v1 import batches_pb2 as pb

METHODS = {
    "OpenBatch": "sessions.open_batch",
    "Heartbeat": "sessions.heartbeat",
    "LeaveBatch": "sessions.leave_batch",
    "CloseBatch": "sessions.close_batch",
    "SubmitSamples": "samples.submit_samples",
    "StartTurn": "samples.start_turn",
    "FinishTurn": "samples.finish_turn",
    "ReleaseEnvironment": "samples.release_environment",
    "ReleaseResident": "samples.release_resident",
    "FinishSample": "samples.finish_sample",
    "AwaitAdmission": "waits.await_admission",
    "AcquireEnvironment": "waits.acquire_environment",
    "AcquireResident": "waits.acquire_resident",
    "ListBatches": "reads.list_batches",
    "GetReport": "reads.get_report",
    "WatchProgress": "reads.watch_progress",
}
CODES = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
REPEATED = ("samples", "exclude", "expected")
SESSION = "the session"  # stands for the name that the service chose
STATES = [
    "waiting",
    "admitted",
    "turning",
    "queued",
    "holding",
    "living",
    "housing",
    "finished",
    "given up",
    "open",
]
TEXTS = st.sampled_from(["b", SESSION, *STATES, "w0", "", "x" * 513]) | st.text(max_size=9)
NUMBERS = st.sampled_from([0, 1, 2, 1000, 1001, -1, 2**63 - 1, -(2**63)])
SECONDS = st.sampled_from([0.0, 0.1, 1.0, 30.0, -1.0, 5e-324, 1e308]) | st.floats()


def values(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        return messages(field.message_type)
    if field.enum_type is not None:
        return st.integers(-1, 4)
    one = {
        FieldDescriptor.TYPE_STRING: st.just(SESSION) | TEXTS if field.name == "session" else TEXTS,
        FieldDescriptor.TYPE_INT64: NUMBERS,
        FieldDescriptor.TYPE_DOUBLE: SECONDS,
        FieldDescriptor.TYPE_BOOL: st.booleans(),
    }[field.type]
    return st.lists(one, max_size=4) if field.name in REPEATED else one


def messages(kind: Descriptor) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={field.name: values(field) for field in kind.fields})


def check(refused: RefusedError) -> None:
    assert refused.code in CODES
    assert refused.message.startswith(refused.field)
    assert "\n" not in refused.message
    assert len(refused.message) < 400


async def busy() -> Bench:
    """A batch with a sample in each state, named after it."""
    bench = Bench("w0", "w1")
    session = bench.open(c_s=6, c_e=1, resident_concurrency=1)
    bench.submit(session, *STATES)
    await bench.admit(session, "finished", "given up")
    bench.finish(session, "finished")
    bench.finish(session, "given up", withdrawn=True)
    await bench.admit(session, "admitted", "turning", "holding", "queued", "living", "housing")
    bench.start(session, "turning")
    await settled(bench.acquire(session, "holding"))
    bench.acquire(session, "queued")
    await settled(bench.house(session, "living"))
    bench.house(session, "housing")
    bench.wait(session, "waiting")
    await ticks()
    assert (bench.state("waiting"), bench.state("queued")) == ("waiting", "queued")
    assert (bench.state("living"), bench.state("housing")) == ("admitted", "resident_queued")
    return bench


@pytest.mark.parametrize("method", METHODS)
def test_any_message_is_answered_or_refused_whole(method: str) -> None:
    kind: type[Message] = getattr(pb, f"{method}Request")
    part, _, name = METHODS[method].partition(".")

    async def send(fields: dict[str, Any]) -> None:
        bench = await busy()
        (session,) = bench.ledger.sessions
        if fields.get("session") == SESSION:
            fields["session"] = session
        carry_out = getattr(getattr(bench.service, part), name)
        sending = (lambda message: asyncio.sleep(0),) if method == "WatchProgress" else ()
        before, facts = snapshot(bench.ledger), len(bench.log.facts)
        try:
            answer = carry_out(kind(**fields), *sending)
            if asyncio.iscoroutine(answer):
                task = asyncio.ensure_future(answer)
                await ticks()
                if task.done():
                    await task
                task.cancel()
        except RefusedError as refused:
            check(refused)
            assert (snapshot(bench.ledger), len(bench.log.facts)) == (before, facts)
        assert snapshot(bench.restarted("w0", "w1").ledger) == snapshot(bench.ledger)

    @settings(max_examples=60, deadline=None)
    @given(messages(kind.DESCRIPTOR))
    def fuzz(fields: dict[str, Any]) -> None:
        asyncio.run(send(fields))

    fuzz()


def test_every_call_is_tried() -> None:
    assert set(METHODS) == {method.name for method in pb.DESCRIPTOR.services_by_name["Batches"].methods}
