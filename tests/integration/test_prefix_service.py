"""The Prefix service as engines meet it: a server process, unary calls and a stream over a real channel."""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from prefix_queues import new_id
from served import served

from coresched.core.reference import ReferencePrefixPolicy, ReferenceWaiting
from coresched.v1 import prefix_pb2 as pb
from coresched.v1.prefix_pb2_grpc import PrefixStub

METHODS = ("OpenQueue", "CloseQueue", "Push", "Requeue", "Order", "SetHits", "Admitted", "Forget")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served() as (address, _):
        yield address


@pytest.fixture
async def prefix(address: str) -> AsyncIterator[PrefixStub]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield PrefixStub(channel)


async def opened(prefix: PrefixStub, capacity: int = 4) -> str:
    name = f"queue {new_id()}"
    await prefix.OpenQueue(pb.OpenQueueRequest(request_id=new_id(), queue=name, label_capacity=capacity))
    return name


async def push(prefix: PrefixStub, queue: str, **labels: str) -> None:
    requests = [pb.QueuedRequest(name=name, label=label) for name, label in labels.items()]
    await prefix.Push(pb.PushRequest(request_id=new_id(), queue=queue, requests=requests))


async def order(prefix: PrefixStub, queue: str) -> pb.OrderResponse:
    return await prefix.Order(pb.OrderRequest(request_id=new_id(), queue=queue))


async def exchange(stream: "grpc.aio.StreamStreamCall", **call: object) -> pb.ScheduleResponse:
    await stream.write(pb.ScheduleRequest(**call))
    return await stream.read()


def hit_of(name: str) -> int:
    return int(name) * 37 % 1000


async def test_an_engines_passes_on_a_stream_are_those_of_the_embedded_policy(prefix: PrefixStub) -> None:
    chance = random.Random(3)
    queue = await opened(prefix, capacity=8)
    twin = ReferencePrefixPolicy(8)
    waiting: list[ReferenceWaiting] = []
    asked: list[str] = []
    stream = prefix.Schedule()
    for turn in range(60):
        entering = [
            ReferenceWaiting(str(turn * 10 + n), f"traj-{chance.randrange(14)}", chance.random())
            for n in range(chance.randrange(10))
        ]
        waiting += entering
        requests = [pb.QueuedRequest(name=e.id, label=e.label, queued_at=e.queued_at) for e in entering]
        call = pb.PushRequest(request_id=new_id(), queue=queue, requests=requests)
        assert (await exchange(stream, push=call)).request_id == call.request_id

        pass_ = pb.OrderRequest(request_id=new_id(), queue=queue, limit=6)
        answer = await exchange(stream, order=pass_)
        while answer.HasField("question"):
            asked += answer.question.names
            tokens = [hit_of(name) for name in answer.question.names]
            told = pb.HitAnswer(request_id=pass_.request_id, tokens=tokens)
            answer = await exchange(stream, hit_answer=told)
        waiting = twin.order(waiting, lambda request: hit_of(request.id))
        assert list(answer.order.names) == [request.id for request in waiting[:6]]

        batch = waiting[: chance.randrange(6)]
        waiting = waiting[len(batch) :]
        for request in batch:
            twin.admitted(request.label)
        told = pb.AdmittedRequest(request_id=new_id(), queue=queue, names=[request.id for request in batch])
        assert (await exchange(stream, admitted=told)).HasField("admitted")
    assert len(set(asked)) == len(asked) > 50
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF
    assert await stream.code() is grpc.StatusCode.OK


async def test_unary_calls_order_once_the_hits_are_told_and_requeue(prefix: PrefixStub) -> None:
    queue = await opened(prefix)
    await push(prefix, queue, a="k", b="j")
    assert (await order(prefix, queue)).names == ["a", "b"]
    await prefix.Admitted(pb.AdmittedRequest(request_id=new_id(), queue=queue, names=["a", "b"]))
    await push(prefix, queue, c="i", d="j")
    assert await order(prefix, queue) == pb.OrderResponse(unasked=["d"], waiting=2)
    hits = [pb.Hit(name="d", tokens=8)]
    await prefix.SetHits(pb.SetHitsRequest(request_id=new_id(), queue=queue, hits=hits))
    assert (await order(prefix, queue)).names == ["d", "c"]
    await prefix.Admitted(pb.AdmittedRequest(request_id=new_id(), queue=queue, names=["d"]))
    await prefix.Requeue(pb.RequeueRequest(request_id=new_id(), queue=queue, names=["d"]))
    assert (await order(prefix, queue)).names == ["d", "c"]
    dropped = await prefix.Forget(pb.ForgetRequest(request_id=new_id(), queue=queue, names=["a", "c"]))
    assert dropped == pb.ForgetResponse(waiting=1, admitted=1)


async def test_a_queue_outlives_the_stream_and_the_connection_of_its_engine(
    address: str, prefix: PrefixStub
) -> None:
    queue = await opened(prefix)
    await push(prefix, queue, a="k", b="k")
    await prefix.Admitted(pb.AdmittedRequest(request_id=new_id(), queue=queue, names=["a"]))
    async with grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        stream = PrefixStub(channel).Schedule()
        asked = pb.OrderRequest(request_id=new_id(), queue=queue)
        assert (await exchange(stream, order=asked)).question.names == ["b"]
    again = pb.OpenQueueRequest(request_id=new_id(), queue=queue, label_capacity=4)
    assert (await prefix.OpenQueue(again)).waiting == 1
    stream = prefix.Schedule()
    asked = pb.OrderRequest(request_id=new_id(), queue=queue)
    assert (await exchange(stream, order=asked)).question.names == ["b"]
    answer = await exchange(stream, hit_answer=pb.HitAnswer(request_id=asked.request_id, tokens=[4]))
    assert answer.order.names == ["b"]
    stream.cancel()
    closed = pb.CloseQueueRequest(request_id=new_id(), queue=queue)
    for _ in range(2):
        assert (await prefix.CloseQueue(closed)).dropped == 1


async def test_errors_name_the_field_in_a_call_and_on_a_stream(prefix: PrefixStub) -> None:
    queue = await opened(prefix)
    await push(prefix, queue, a="k", b="k")
    await prefix.Admitted(pb.AdmittedRequest(request_id=new_id(), queue=queue, names=["a"]))
    await prefix.SetHits(
        pb.SetHitsRequest(request_id=new_id(), queue=queue, hits=[pb.Hit(name="b", tokens=1)])
    )
    common = {"request_id": "new", "queue": queue}
    many = [pb.QueuedRequest(name=f"r{n}") for n in range(1000)]
    for page in range(100):
        full = [pb.QueuedRequest(name=f"p{page}/{n}") for n in range(1000 - (page == 0))]
        await prefix.Push(pb.PushRequest(request_id=new_id(), queue=queue, requests=full))
    cases = [
        ("OpenQueue", pb.OpenQueueRequest(label_capacity=5, **common), "ALREADY_EXISTS", "label_capacity"),
        ("OpenQueue", pb.OpenQueueRequest(queue=queue, label_capacity=4), "INVALID_ARGUMENT", "request_id"),
        ("CloseQueue", pb.CloseQueueRequest(request_id="new", queue="?"), "NOT_FOUND", "queue"),
        ("Push", pb.PushRequest(requests=many[:1], **common), "RESOURCE_EXHAUSTED", "requests"),
        ("Push", pb.PushRequest(queue=queue), "INVALID_ARGUMENT", "request_id"),
        ("Requeue", pb.RequeueRequest(names=["b"], **common), "RESOURCE_EXHAUSTED", "names"),
        ("Order", pb.OrderRequest(limit=0, **common), "INVALID_ARGUMENT", "limit"),
        ("Order", pb.OrderRequest(after="z", **common), "NOT_FOUND", "after"),
        ("SetHits", pb.SetHitsRequest(hits=[pb.Hit(name="b")], **common), "FAILED_PRECONDITION", "name"),
        ("Admitted", pb.AdmittedRequest(names=["z"], **common), "NOT_FOUND", "names"),
        ("Forget", pb.ForgetRequest(request_id="new", queue="?", names=["b"]), "NOT_FOUND", "queue"),
    ]
    stream = prefix.Schedule()
    for method, request, code, field in cases:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await getattr(prefix, method)(request)
        assert (refused.value.code().name, refused.value.details().split()[0]) == (code, field)
        kind = re.sub("(?<=[a-z])([A-Z])", r"_\1", method).lower()
        refusal = (await exchange(stream, **{kind: request})).refusal
        assert refusal.code == refused.value.code().value[0]
        assert (refusal.field, refusal.message) == (field, refused.value.details())
    stream.cancel()
    await prefix.CloseQueue(pb.CloseQueueRequest(request_id=new_id(), queue=queue))


async def test_bytes_that_are_no_messages_leave_the_server_up_and_everything_as_it_was(
    address: str, prefix: PrefixStub
) -> None:
    chance = random.Random(11)
    queue = await opened(prefix)
    await push(prefix, queue, a="k", b="j")
    before = await order(prefix, queue)
    async with grpc.aio.insecure_channel(address) as channel:
        for method in METHODS:
            call = channel.unary_unary(f"/coresched.v1.Prefix/{method}")
            for n in range(60):
                data = (b"\xff" if n % 2 else b"") + chance.randbytes(chance.randrange(1, 200))
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call(data)
                assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(b"\x0a" + b"x" * 70_000)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        stream = channel.stream_stream("/coresched.v1.Prefix/Schedule")()
        for _ in range(60):
            await stream.write(b"\xff" + chance.randbytes(chance.randrange(200)))
            refusal = pb.ScheduleResponse.FromString(await stream.read()).refusal
            assert refusal.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
        stream.cancel()
    assert await order(prefix, queue) == before


async def test_an_engine_cancelled_in_a_question_leaves_no_one_waiting(prefix: PrefixStub) -> None:
    queue = await opened(prefix)
    await push(prefix, queue, a="k", b="k")
    await prefix.Admitted(pb.AdmittedRequest(request_id=new_id(), queue=queue, names=["a"]))
    for _ in range(3):
        stream = prefix.Schedule()
        asked = pb.OrderRequest(request_id=new_id(), queue=queue)
        assert (await exchange(stream, order=asked)).question.names == ["b"]
        stream.cancel()
    assert (await asyncio.wait_for(order(prefix, queue), 10)).unasked == ["b"]


async def test_health_and_reflection_answer(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        answer = await health.Check(health_pb2.HealthCheckRequest(service="coresched.v1.Prefix"))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with grpc.insecure_channel(address) as channel:
        service = DescriptorPool(ProtoReflectionDescriptorDatabase(channel)).FindServiceByName(
            "coresched.v1.Prefix"
        )
        assert {method.name for method in service.methods} == {*METHODS, "Schedule"}


def test_the_page_of_the_service_runs_as_it_stands(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "service.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (example,) = [block for block in blocks if "PrefixStub" in block]
    for _ in range(2):  # and leaves nothing behind
        exec(example.replace("127.0.0.1:50071", address), {})
    first, then, *again = capsys.readouterr().out.splitlines()
    assert again == [first, then]
    assert f"It prints `{first}`, then `{then}`" in page
