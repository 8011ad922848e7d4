"""When the client sends a call again, what it makes of a refusal, and when it gives the session up."""

import asyncio
import itertools
from typing import Any

import grpc
import pytest
from fake_batches import UNAVAILABLE, Blocked, FakeBatches, refuse

import coresched
from coresched import sync
from coresched.client.remote import attempts, session
from coresched.v1 import batches_pb2 as pb


def connected(fake: FakeBatches, **options: Any) -> Any:
    return coresched.connect(fake.address, **{"batch": "b", "sample_concurrency": 2, **options})


def connected_blocking(fake: FakeBatches, **options: Any) -> Any:
    return sync.connect(fake.address, **{"batch": "b", "sample_concurrency": 2, **options})


MUTATING = [
    "OpenBatch",
    "SubmitSamples",
    "AwaitAdmission",
    "StartTurn",
    "FinishTurn",
    "AcquireEnvironment",
    "ReleaseEnvironment",
    "FinishSample",
    "LeaveBatch",
]


async def run_one(fake: FakeBatches) -> None:
    async with connected(fake) as batch, batch.sample("a") as sample:
        async with sample.inference() as turn:
            assert turn.worker == "w0"
        async with sample.environment():
            pass


def run_one_blocking(fake: FakeBatches) -> None:
    with connected_blocking(fake) as batch, batch.sample("a") as sample:
        with sample.inference() as turn:
            assert turn.worker == "w0"
        with sample.environment():
            pass


@pytest.mark.parametrize("method", MUTATING)
async def test_a_call_without_an_answer_is_sent_again_with_its_request_id(
    fake: FakeBatches, method: str
) -> None:
    fake.script[method].extend([UNAVAILABLE, refuse(grpc.StatusCode.CANCELLED)])
    await run_one(fake)
    first, *again = fake.of(method)
    assert first.request_id
    assert again == [first, first]
    others = [request for name, request in fake.calls if name != method and name in MUTATING]
    assert len({request.request_id for request in others}) == len(MUTATING) - 1


@pytest.mark.parametrize("method", MUTATING)
def test_so_does_the_blocking_client(fake: FakeBatches, method: str) -> None:
    fake.script[method].extend([UNAVAILABLE, refuse(grpc.StatusCode.CANCELLED)])
    run_one_blocking(fake)
    first, *again = fake.of(method)
    assert again == [first, first]


@pytest.mark.parametrize(
    ("code", "message", "error"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "exclude must name workers", ValueError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "samples must be at most 10", coresched.ServiceLimitError),
        (grpc.StatusCode.NOT_FOUND, "session must be open", coresched.SessionLostError),
        (grpc.StatusCode.ABORTED, "the batch was closed", coresched.BatchClosedError),
        (grpc.StatusCode.PERMISSION_DENIED, "not yours", coresched.ServiceError),
    ],
)
@pytest.mark.parametrize("blocking", [False, True])
async def test_a_refused_call_is_an_error_at_once(
    fake: FakeBatches, code: grpc.StatusCode, message: str, error: type[Exception], blocking: bool
) -> None:
    fake.script["StartTurn"].append(refuse(code, message))

    def run() -> None:
        with connected_blocking(fake) as batch, batch.sample("a") as sample, sample.inference():
            raise AssertionError("the turn was refused")

    async def run_asynchronously() -> None:
        async with connected(fake) as batch, batch.sample("a") as sample, sample.inference():
            raise AssertionError("the turn was refused")

    with pytest.raises(error) as raised:
        await (asyncio.to_thread(run) if blocking else run_asynchronously())
    assert len(fake.of("StartTurn")) == 1
    if isinstance(raised.value, coresched.ServiceError):
        assert raised.value.code == code.name
        assert message in str(raised.value)


async def test_a_refused_turn_may_be_tried_again(fake: FakeBatches) -> None:
    fake.script["StartTurn"].append(refuse(grpc.StatusCode.FAILED_PRECONDITION, "no worker is left"))
    async with connected(fake) as batch, batch.sample("a") as sample:
        with pytest.raises(coresched.ServiceError, match="no worker is left"):
            await sample.inference().__aenter__()
        async with sample.inference():
            pass
    assert len(fake.of("StartTurn")) == 2


class Clock:
    """Goes on by `step` with every look at it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.step = 0.0

    def monotonic(self) -> float:
        self.now += self.step
        return self.now


async def silence(fake: FakeBatches, clock: Clock) -> None:
    async with connected(fake, grace_s=7) as batch, batch.sample("a") as sample:
        blocked = fake.always["AwaitAdmission"] = Blocked(pb.AwaitAdmissionResponse())
        waiting = asyncio.ensure_future(batch.sample("b").__aenter__())
        await asyncio.to_thread(blocked.begun.wait)
        clock.step = 3.0
        fake.always["StartTurn"] = UNAVAILABLE
        with pytest.raises(coresched.SessionLostError, match="has not answered for 7 s"):
            await sample.inference().__aenter__()
        assert len(fake.of("StartTurn")) > 1
        with pytest.raises(coresched.SessionLostError):  # whoever waits is told
            await waiting
        with pytest.raises(coresched.SessionLostError):  # and whoever goes on
            await sample.environment().__aenter__()
        with pytest.raises(coresched.SessionLostError):
            batch.sample("c")


async def test_a_service_that_does_not_answer_is_given_up_after_the_grace_period(
    fake: FakeBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(session, "time", clock)
    with pytest.raises(coresched.SessionLostError, match="has not answered"):
        await silence(fake, clock)
    assert fake.of("LeaveBatch") == []


def test_delays_double_up_to_their_limit_and_are_drawn_from_the_upper_half() -> None:
    drawn = list(itertools.islice(attempts.delays(), 12))
    ceilings = [min(0.05 * 2**n, 5.0) for n in range(12)]
    assert all(ceiling / 2 <= delay <= ceiling for delay, ceiling in zip(drawn, ceilings, strict=True))
    assert len(set(drawn)) == 12


async def test_heartbeats_tell_the_progress_and_that_the_batch_was_closed(fake: FakeBatches) -> None:
    fake.heartbeat_s = 0.01
    beaten = asyncio.Event()
    loop = asyncio.get_running_loop()

    def progress(request: Any, context: Any) -> Any:
        loop.call_soon_threadsafe(beaten.set)
        return pb.HeartbeatResponse(progress=pb.BatchProgress(samples=7))

    fake.always["Heartbeat"] = progress
    async with connected(fake) as batch, batch.sample("a") as sample:
        await beaten.wait()
        while batch.progress.samples != 7:
            await asyncio.sleep(0.001)
        blocked = fake.always["AcquireEnvironment"] = Blocked(pb.AcquireEnvironmentResponse())
        waiting = asyncio.ensure_future(sample.environment().__aenter__())
        await asyncio.to_thread(blocked.begun.wait)
        fake.always["Heartbeat"] = lambda request, context: pb.HeartbeatResponse(
            progress=pb.BatchProgress(closed=True)
        )
        with pytest.raises(coresched.BatchClosedError):
            await waiting
        with pytest.raises(coresched.BatchClosedError):
            batch.sample("b")
    assert fake.of("FinishSample") == []
