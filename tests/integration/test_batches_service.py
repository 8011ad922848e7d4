"""The Batches service as clients meet it: a server process, real channels, clients that wait, go and die."""

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from served import served

from coresched.v1 import batches_pb2 as pb
from coresched.v1 import router_pb2
from coresched.v1.batches_pb2_grpc import BatchesStub
from coresched.v1.router_pb2_grpc import RouterStub

NUMBERS = count()


def new_id() -> str:
    return f"call {next(NUMBERS)}"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served("--worker", "w0", "--worker", "w1") as (address, _):
        yield address


class Client:
    """One session over a channel of its own."""

    def __init__(self, address: str, batch: str, c_s: int = 2, c_e: int = 1, grace_s: float = 30.0) -> None:
        self.channel = grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
        self.stub = BatchesStub(self.channel)
        self.batch = batch
        options = pb.BatchOptions(sample_concurrency=c_s, environment_concurrency=c_e)
        self.opening = pb.OpenBatchRequest(request_id=new_id(), batch=batch, options=options, grace_s=grace_s)

    async def __aenter__(self) -> "Client":
        self.session = (await self.stub.OpenBatch(self.opening)).session
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()

    def call(self, method: str, timeout: float | None = 30.0, **fields: Any) -> Any:
        kind = getattr(pb, f"{method}Request")
        fields.setdefault("request_id", new_id())
        return getattr(self.stub, method)(kind(session=self.session, **fields), timeout=timeout)

    async def admit(self, *samples: str) -> None:
        await self.call("SubmitSamples", samples=samples)
        for sample in samples:
            assert (await self.call("AwaitAdmission", sample=sample)).sample == sample

    async def progress(self) -> pb.BatchProgress:
        return (await self.stub.Heartbeat(pb.HeartbeatRequest(session=self.session))).progress

    async def until(self, reached: Callable[[pb.BatchProgress], bool]) -> pb.BatchProgress:
        """Beat until the batch stands so."""

        async def reaching() -> pb.BatchProgress:
            while not reached(progress := await self.progress()):
                await asyncio.sleep(0.02)
            return progress

        return await asyncio.wait_for(reaching(), 20)


async def test_two_processes_share_the_slots_of_a_batch_and_every_sample_ends_once(address: str) -> None:
    finished: list[str] = []

    async def work(client: Client) -> None:
        while sample := (await client.call("AwaitAdmission")).sample:
            for _ in range(2):
                assert (await client.call("StartTurn", sample=sample)).worker in ("w0", "w1")
                await client.call("FinishTurn", sample=sample)
                await client.call("AcquireEnvironment", sample=sample)
                await client.call("ReleaseEnvironment", sample=sample)
            await client.call("FinishSample", sample=sample)
            finished.append(sample)

    async def watch(stub: BatchesStub, seen: list[pb.BatchProgress]) -> None:
        async for message in stub.WatchProgress(pb.WatchProgressRequest(batch="shared", interval_s=0.1)):
            seen.append(message.progress)

    async with Client(address, "shared", 3, 2) as one, Client(address, "shared", 3, 2) as other:
        seen: list[pb.BatchProgress] = []
        watching = asyncio.create_task(watch(one.stub, seen))
        names = [f"s{n}" for n in range(30)]
        await asyncio.gather(
            *(work(client) for client in (one, other) for _ in range(4)),
            one.call("SubmitSamples", samples=names[:20]),
            other.call("SubmitSamples", samples=names[10:]),
        )
        assert sorted(finished) == sorted(names)
        report = await one.stub.GetReport(pb.GetReportRequest(batch="shared"))
        assert {sample.state for sample in report.samples} == {pb.SAMPLE_STATE_FINISHED}
        await one.call("LeaveBatch")
        last = (await other.call("LeaveBatch")).progress
        assert (last.closed, last.finished, last.turns, last.environment_stages) == (True, 30, 60, 60)
        await asyncio.wait_for(watching, 20)
        assert all(message.admitted <= 3 and message.environment_running <= 2 for message in seen)
        assert seen[-1] == last
    async with grpc.aio.insecure_channel(address) as channel:
        workers = (await RouterStub(channel).ListWorkers(router_pb2.ListWorkersRequest())).workers
        assert sum(worker.in_flight for worker in workers) == 0


CLIENT = """
import sys, grpc
from coresched.v1 import batches_pb2 as pb
from coresched.v1.batches_pb2_grpc import BatchesStub

address, session = sys.argv[1:]
batches = BatchesStub(grpc.insecure_channel(address))
def named(number, sample):
    return {"request_id": f"{session} {number}", "session": session, "sample": sample}
batches.AwaitAdmission(pb.AwaitAdmissionRequest(**named(0, "a")))
batches.AwaitAdmission(pb.AwaitAdmissionRequest(**named(1, "b")))
batches.AcquireEnvironment(pb.AcquireEnvironmentRequest(**named(2, "a")))
queued = batches.AcquireEnvironment.future(pb.AcquireEnvironmentRequest(**named(3, "b")))
waiting = batches.AwaitAdmission.future(pb.AwaitAdmissionRequest(**named(4, "c")))
print("holding", flush=True)
queued.result()
"""


async def test_a_killed_client_leaves_its_waits_at_once_and_its_slots_after_its_grace(address: str) -> None:
    async with (
        Client(address, "killed", grace_s=30.0) as living,
        Client(address, "killed", grace_s=4.0) as dying,
    ):
        await living.call("SubmitSamples", samples=["a", "b", "c"])
        command = [sys.executable, "-c", CLIENT, address, dying.session]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            holding = asyncio.ensure_future(asyncio.to_thread(process.stdout.readline))
            while not holding.done():  # a process may take longer to start than its grace period
                await dying.progress()
                await asyncio.sleep(0.1)
            assert await holding == "holding\n"
            await living.until(lambda progress: progress.environment_queued == progress.waiting == 1)
            process.kill()
        broken = await living.until(lambda progress: progress.environment_queued == progress.waiting == 0)
        assert (broken.sessions, broken.admitted, broken.environment_running) == (2, 2, 1)
        back = await living.until(lambda progress: progress.sessions == 1)
        assert (back.admitted, back.environment_running, back.open) == (0, 0, 3)
        answers = [await living.call("AwaitAdmission") for _ in range(2)]
        assert [(answer.sample, answer.admissions) for answer in answers] == [("a", 2), ("b", 2)]
        await living.call("AcquireEnvironment", sample="a")
        with pytest.raises(grpc.aio.AioRpcError, match="silent for its grace period") as refused:
            await dying.progress()
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        await living.call("LeaveBatch")


async def test_a_client_that_lost_its_connection_goes_on_where_it_was(address: str) -> None:
    async with Client(address, "broken") as client:
        await client.admit("a", "b")
        await client.call("AcquireEnvironment", sample="a")
        request_id = new_id()
        lost = client.call("AcquireEnvironment", sample="b", request_id=request_id)
        await client.until(lambda progress: progress.environment_queued == 1)
        begun = asyncio.get_running_loop().time()
        session = client.session
        await client.channel.close()
        with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
            await lost
    async with Client(address, "broken") as again:
        await again.until(lambda progress: progress.environment_queued == 0)
        again.session = session
        resumed = again.call("AcquireEnvironment", sample="b", request_id=request_id)
        await again.until(lambda progress: progress.environment_queued == 1)
        waited_s = asyncio.get_running_loop().time() - begun
        await again.call("ReleaseEnvironment", sample="a")
        assert (await resumed).queue_s >= waited_s
        await again.call("LeaveBatch")


async def test_waiters_that_are_cancelled_or_late_leave_at_once(address: str) -> None:
    async with Client(address, "leaving") as client:
        await client.admit("a", "b")
        await client.call("SubmitSamples", samples=["c"])
        await client.call("AcquireEnvironment", sample="a")
        for method, sample in (("AwaitAdmission", "c"), ("AcquireEnvironment", "b")):
            wait = client.call(method, sample=sample)
            await client.until(lambda progress: progress.waiting + progress.environment_queued == 1)
            wait.cancel()
            await client.until(lambda progress: progress.waiting + progress.environment_queued == 0)
            with pytest.raises(grpc.aio.AioRpcError) as late:
                await client.call(method, sample=sample, timeout=0.2)
            assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            await client.until(lambda progress: progress.waiting + progress.environment_queued == 0)
        await client.call("LeaveBatch")


async def test_more_waiters_than_may_are_sent_away() -> None:
    with served("--max-waiters", "3", "--max-open-batches", "1") as (address, _):
        async with Client(address, "full", c_s=1) as client:
            await client.admit("a")
            waits = [asyncio.ensure_future(_code(client.call("AwaitAdmission"))) for _ in range(20)]
            ended = asyncio.as_completed(waits)
            for _ in range(17):
                assert await next(ended) is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (await client.progress()).admitted == 1
            with pytest.raises(grpc.aio.AioRpcError, match="the most of --max-open-batches"):
                async with Client(address, "one more"):
                    pass
            await client.call("FinishSample", sample="a")
            assert [await wait for wait in ended] == [grpc.StatusCode.OK] * 3


async def _code(call: Any) -> grpc.StatusCode:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_a_stopping_server_ends_waits_and_streams_at_once() -> None:
    with served("--grace-s", "60") as (address, process):
        async with Client(address, "stopping", c_s=1) as client:
            await client.admit("a")
            await client.call("SubmitSamples", samples=["b"])
            waits = [client.call("AwaitAdmission", sample="b")]
            await client.until(lambda progress: progress.waiting == 1)
            waits.append(client.call("AwaitAdmission"))  # not before, or it would be the one that gets b
            stream = client.stub.WatchProgress(pb.WatchProgressRequest(batch="stopping"))
            await stream.read()
            process.send_signal(signal.SIGTERM)
            for call in (*waits, stream):
                assert await call.code() is grpc.StatusCode.UNAVAILABLE
                assert await call.details() == "stopping; send the call again"
        assert await asyncio.to_thread(process.wait, 20) == 0
        printed, logged = process.communicate()
        assert printed == ""
        assert all(line.startswith("coresched serve: ") for line in logged.splitlines())


async def test_health_and_reflection_know_the_service(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        answer = await health.Check(health_pb2.HealthCheckRequest(service="coresched.v1.Batches"))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with grpc.insecure_channel(address) as channel:
        reflected = ProtoReflectionDescriptorDatabase(channel)
        assert "coresched.v1.Batches" in reflected.get_services()
        service = DescriptorPool(reflected).FindServiceByName("coresched.v1.Batches")
        known = pb.DESCRIPTOR.services_by_name["Batches"]
        assert [method.name for method in service.methods] == [method.name for method in known.methods]


async def test_messages_that_are_no_messages_are_refused_and_leave_everything_as_it_was(address: str) -> None:
    chance = random.Random(11)
    async with Client(address, "kept") as client:
        await client.admit("a")
        await client.call("SubmitSamples", samples=["b"])

        async def reports() -> list[pb.SampleReport]:
            return list((await client.stub.GetReport(pb.GetReportRequest(batch="kept"))).samples)

        before = await reports()
        for method in pb.DESCRIPTOR.services_by_name["Batches"].methods:
            path = f"/coresched.v1.Batches/{method.name}"
            for _ in range(20):
                data = b"\xff" + chance.randbytes(chance.randrange(200))
                assert await _sent(client.channel, path, data) is grpc.StatusCode.INVALID_ARGUMENT
            for _ in range(40):
                code = await _sent(client.channel, path, chance.randbytes(chance.randrange(30)))
                assert code.name in ("INVALID_ARGUMENT", "NOT_FOUND", "OK")
            large = await _sent(client.channel, path, b"\x0a" + b"x" * 70_000)
            assert large is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await reports() == before
        await client.call("LeaveBatch")


async def _sent(channel: grpc.aio.Channel, path: str, data: bytes) -> grpc.StatusCode:
    if path.endswith("WatchProgress"):
        return await channel.unary_stream(path)(data, timeout=30).code()
    return await channel.unary_unary(path)(data, timeout=30).code()
