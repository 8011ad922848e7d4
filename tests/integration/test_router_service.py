"""The router service as clients meet it: a server process, real channels over TCP and a unix socket."""

import asyncio
import random
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from served import served

from coresched.core.ring import LoadBoundedRouter
from coresched.v1 import router_pb2 as pb
from coresched.v1.router_pb2_grpc import RouterStub

WORKERS = {"w0": 1.0, "w1": 1.0, "http://w2:30000": 2.5}
NUMBERS = count()


def new_id() -> str:
    return f"call {next(NUMBERS)}"


@pytest.fixture(scope="module", params=["tcp", "unix"])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    listen = "127.0.0.1:0" if request.param == "tcp" else f"unix:{tmp_path_factory.mktemp('s')}/s"
    workers = [f"--worker={name}={weight}" for name, weight in WORKERS.items()]
    with served(*workers, "--load-bound", "1.5", listen=listen) as (address, _):
        yield address


@pytest.fixture
async def router(address: str) -> AsyncIterator[RouterStub]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield RouterStub(channel)


async def loads(router: RouterStub) -> dict[str, int]:
    listed = await router.ListWorkers(pb.ListWorkersRequest())
    return {worker.worker: worker.in_flight for worker in listed.workers}


async def eventually(router: RouterStub, in_flight: int) -> None:
    async def settled() -> None:
        while sum((await loads(router)).values()) != in_flight:
            await asyncio.sleep(0.02)

    await asyncio.wait_for(settled(), 20)


def turns(labels: int) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """A label to route, whom to exclude, and which of the requests in flight to release then (or -1)."""
    chance = random.Random(7)
    for n in range(labels):
        exclude = ("w0",) if chance.random() < 0.1 else ()
        yield f"traj-{n}", exclude, chance.randrange(1 << 30) if chance.random() < 0.9 else -1


async def test_a_thousand_labels_are_routed_as_embedded(router: RouterStub) -> None:
    embedded = LoadBoundedRouter(WORKERS, load_bound=1.5)
    held: list[tuple[str, str]] = []
    for label, exclude, released in turns(1000):
        answer = await router.Route(pb.RouteRequest(request_id=new_id(), label=label, exclude=exclude))
        assert answer.worker == embedded.route(label, exclude)
        held.append((label, answer.worker))
        if released >= 0:
            ended, worker = held.pop(released % len(held))
            await router.Release(pb.ReleaseRequest(request_id=new_id(), label=ended, worker=worker))
            embedded.release(worker)
    assert await loads(router) == embedded.loads()
    assert sum(embedded.loads().values()) > 50
    for label, worker in held:
        await router.Release(pb.ReleaseRequest(request_id=new_id(), label=label, worker=worker))


async def test_a_thousand_labels_on_a_stream_are_routed_as_embedded_and_given_back(
    router: RouterStub,
) -> None:
    embedded = LoadBoundedRouter(WORKERS, load_bound=1.5)
    held: list[tuple[str, str]] = []
    stream = router.RouteStream()
    for label, exclude, released in turns(1000):
        call = pb.RouteRequest(request_id=new_id(), label=label, exclude=exclude)
        await stream.write(pb.RouteStreamRequest(route=call))
        answer = await stream.read()
        assert answer.request_id == call.request_id
        assert answer.route.worker == embedded.route(label, exclude)
        held.append((label, answer.route.worker))
        if released >= 0:
            ended, worker = held.pop(released % len(held))
            release = pb.ReleaseRequest(request_id=new_id(), label=ended, worker=worker)
            await stream.write(pb.RouteStreamRequest(release=release))
            answer = await stream.read()
            assert (answer.request_id, answer.WhichOneof("answer")) == (release.request_id, "release")
            embedded.release(worker)
    assert await loads(router) == embedded.loads()
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF
    assert await stream.code() is grpc.StatusCode.OK
    assert sum((await loads(router)).values()) == 0


async def test_calls_written_at_once_are_answered_in_order(router: RouterStub) -> None:
    calls = [pb.RouteRequest(request_id=new_id(), label=f"k{n}") for n in range(200)]
    stream = router.RouteStream(pb.RouteStreamRequest(route=call) for call in calls)
    assert [answer.request_id async for answer in stream] == [call.request_id for call in calls]
    await eventually(router, 0)


async def test_a_held_request_counts_where_it_was_and_ends_with_its_release_or_stream(
    router: RouterStub,
) -> None:
    stream = router.RouteStream()

    async def answer(**call: object) -> pb.RouteStreamResponse:
        await stream.write(pb.RouteStreamRequest(**call))
        return await stream.read()

    hold = pb.HoldRequest(request_id=new_id(), label="k", worker="w1")
    for _ in range(2):  # a retry changes nothing
        assert (await answer(hold=hold)).WhichOneof("answer") == "hold"
        assert await loads(router) == {name: int(name == "w1") for name in WORKERS}
    release = pb.ReleaseRequest(request_id=new_id(), label="k", worker="w1")
    assert (await answer(release=release)).WhichOneof("answer") == "release"
    assert sum((await loads(router)).values()) == 0
    assert (await answer(hold=pb.HoldRequest(request_id=new_id(), label="k", worker="w0"))).HasField("hold")
    refusal = (await answer(hold=pb.HoldRequest(request_id=new_id(), label="k", worker="w8"))).refusal
    assert (refusal.code, refusal.field) == (pb.REFUSAL_CODE_NOT_FOUND, "worker")
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF
    await eventually(router, 0)


async def test_retries_are_idempotent_also_from_another_connection(address: str, router: RouterStub) -> None:
    route = pb.RouteRequest(request_id=new_id(), label="k")
    worker = (await router.Route(route)).worker
    async with grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as other:
        again = RouterStub(other)
        assert (await again.Route(route)).worker == worker
        assert sum((await loads(router)).values()) == 1
        release = pb.ReleaseRequest(request_id=new_id(), label="k", worker=worker)
        assert await router.Release(release) == await again.Release(release)
    assert sum((await loads(router)).values()) == 0

    register = pb.RegisterWorkerRequest(request_id=new_id(), worker="w9", weight=0.5)
    remove = pb.RemoveWorkerRequest(request_id=new_id(), worker="w9")
    for call, request in ((router.RegisterWorker, register), (router.RemoveWorker, remove)):
        assert await call(request) == await call(request)
        assert ("w9" in await loads(router)) == (request is register)


async def test_errors_name_the_field_in_a_call_and_on_a_stream(router: RouterStub) -> None:
    invalid, absent, unready = (
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.FAILED_PRECONDITION,
    )
    cases = [
        (pb.RouteRequest(label="k"), invalid, "request_id"),
        (pb.RouteRequest(request_id="r"), invalid, "label"),
        (pb.RouteRequest(request_id="r", label="x" * 513), invalid, "label"),
        (pb.RouteRequest(request_id="r", label="k", exclude=["w8"]), absent, "exclude"),
        (pb.RouteRequest(request_id="r", label="k", exclude=list(WORKERS)), unready, "exclude"),
        (pb.ReleaseRequest(request_id="r", label="k", worker="w8"), absent, "worker"),
        (pb.ReleaseRequest(request_id="r", label="k", worker="w0"), unready, "worker"),
    ]
    stream = router.RouteStream()
    for request, code, field in cases:
        call = router.Route if isinstance(request, pb.RouteRequest) else router.Release
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(request)
        assert refused.value.code() is code
        assert refused.value.details().startswith(f"{field} ")
        kind = "route" if isinstance(request, pb.RouteRequest) else "release"
        await stream.write(pb.RouteStreamRequest(**{kind: request}))
        refusal = (await stream.read()).refusal
        assert refusal.code == code.value[0]
        assert (refusal.field, refusal.message) == (field, refused.value.details())
    await stream.write(pb.RouteStreamRequest())
    assert (await stream.read()).refusal.field == "call"
    stream.cancel()

    again = pb.RegisterWorkerRequest(request_id="r", worker="w0")
    weightless = pb.RegisterWorkerRequest(request_id="r", worker="v", weight=-1)
    unknown = pb.RemoveWorkerRequest(request_id="r", worker="v")
    for call, request, code, field in (
        (router.RegisterWorker, again, "ALREADY_EXISTS", "worker"),
        (router.RegisterWorker, weightless, "INVALID_ARGUMENT", "weight"),
        (router.RemoveWorker, unknown, "NOT_FOUND", "worker"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(request)
        assert refused.value.code().name == code
        assert refused.value.details().startswith(f"{field} ")
    assert set((await loads(router)).values()) == {0}


async def test_messages_that_are_no_messages_are_refused_and_leave_everything_as_it_was(
    address: str, router: RouterStub
) -> None:
    chance = random.Random(11)
    await router.Route(pb.RouteRequest(request_id="kept", label="k"))
    before = await router.ListWorkers(pb.ListWorkersRequest())
    async with grpc.aio.insecure_channel(address) as channel:
        for method in ("RegisterWorker", "RemoveWorker", "ListWorkers", "Route", "Release"):
            call = channel.unary_unary(f"/coresched.v1.Router/{method}")
            for _ in range(40):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call(b"\xff" + chance.randbytes(chance.randrange(200)))
                assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(b"\x0a" + b"x" * 70_000)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        stream = channel.stream_stream("/coresched.v1.Router/RouteStream")()
        for _ in range(40):
            await stream.write(b"\xff" + chance.randbytes(chance.randrange(200)))
            refusal = pb.RouteStreamResponse.FromString(await stream.read()).refusal
            assert refusal.code == pb.REFUSAL_CODE_INVALID_ARGUMENT
        stream.cancel()
    assert await router.ListWorkers(pb.ListWorkersRequest()) == before
    worker = (await router.Route(pb.RouteRequest(request_id="kept", label="k"))).worker
    await router.Release(pb.ReleaseRequest(request_id=new_id(), label="k", worker=worker))


CLIENT = """
import sys, time, grpc
from coresched.v1 import router_pb2 as pb
from coresched.v1.router_pb2_grpc import RouterStub

def calls():
    for n in range(20):
        yield pb.RouteStreamRequest(route=pb.RouteRequest(request_id=f"{sys.argv[2]} {n}", label=f"k{n}"))
    time.sleep(600)

answers = RouterStub(grpc.insecure_channel(sys.argv[1])).RouteStream(calls())
for n in range(20):
    next(answers)
print("routed", flush=True)
time.sleep(600)
"""


async def test_a_client_killed_on_a_stream_gives_its_requests_back(address: str, router: RouterStub) -> None:
    kept = pb.RouteRequest(request_id=new_id(), label="kept")
    worker = (await router.Route(kept)).worker
    command = [sys.executable, "-c", CLIENT, address, new_id()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "routed\n"
        assert sum((await loads(router)).values()) == 21
        client.kill()
    await eventually(router, 1)
    await router.Release(pb.ReleaseRequest(request_id=new_id(), label="kept", worker=worker))


async def test_health_and_reflection_answer(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "coresched.v1.Router"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with grpc.insecure_channel(address) as channel:
        reflected = ProtoReflectionDescriptorDatabase(channel)
        assert {"coresched.v1.Router", "grpc.health.v1.Health"} <= set(reflected.get_services())
        router = DescriptorPool(reflected).FindServiceByName("coresched.v1.Router")
        assert [m.name for m in router.methods] == [
            m.name for m in pb.DESCRIPTOR.services_by_name["Router"].methods
        ]


def test_the_page_of_the_service_runs_as_it_stands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "service.md").read_text()
    (console,) = re.findall(r"^```console\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (example,) = [block for block in blocks if "RouterStub" in block]
    command, printed = console.splitlines()
    program, verb, listen, address, *options = shlex.split(command.removeprefix("$ "))
    assert (program, verb, listen) == ("coresched", "serve", "--listen")
    assert printed == f"coresched serve: listening on {address}"
    with served(*options, listen="127.0.0.1:0") as (free, _):
        for _ in range(2):  # and leaves nothing behind
            exec(example.replace(address, free), {})
    assert capsys.readouterr().out == 2 * "w0 1.0 0\nw1 2.0 0\nw2 1.0 0\n"
