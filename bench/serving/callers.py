"""One client of the router service: Route and Release in turns, each call timed."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import count, cycle
from time import perf_counter
from typing import Any, Protocol

import grpc

from bench.cases.lbch import trajectory_labels, worker_names
from bench.serving.servers import WORKERS
from bench.timing import Subject
from coresched.service.calls import RouterCalls
from coresched.service.table import Owner, RoutingTable
from coresched.v1 import router_pb2 as pb
from coresched.v1.router_pb2_grpc import RouterStub

_numbers = count()
_labels = cycle(trajectory_labels(WORKERS))


class Caller(Protocol):
    """Makes that many calls with that many outstanding; returns the seconds that each took."""

    def __call__(
        self, channel: grpc.aio.Channel, outstanding: int, calls: int
    ) -> Coroutine[Any, Any, list[float]]: ...


async def unary(channel: grpc.aio.Channel, outstanding: int, calls: int) -> list[float]:
    """Callers that each route a request, wait for the answer, release it and so on."""
    router = RouterStub(channel)  # type: ignore[no-untyped-call]
    seconds: list[float] = []
    decisions = iter(range(calls // 2))

    async def timed(method: Callable[[Any], Any], request: object) -> Any:
        start = perf_counter()
        answer = await method(request)
        seconds.append(perf_counter() - start)
        return answer

    async def caller() -> None:
        for _ in decisions:
            request = route()
            answer = await timed(router.Route, request)
            await timed(router.Release, release(request.label, answer.worker))

    await asyncio.gather(*(caller() for _ in range(outstanding)))
    return seconds


async def stream(channel: grpc.aio.Channel, outstanding: int, calls: int) -> list[float]:
    """One stream with up to so many messages unanswered; it is open before the first of them is timed."""
    opened = RouterStub(channel).RouteStream()  # type: ignore[no-untyped-call]
    await opened.wait_for_connection()
    seconds: list[float] = []
    sent: deque[tuple[float, str | None]] = deque()  # the label of a route, None for a release
    routes = iter(range(calls // 2))

    async def send(label: str | None = None, worker: str = "") -> None:
        if label is None:
            if next(routes, None) is None:
                return
            asked = route()
            message = pb.RouteStreamRequest(route=asked)
            sent.append((perf_counter(), asked.label))
        else:
            message = pb.RouteStreamRequest(release=release(label, worker))
            sent.append((perf_counter(), None))
        await opened.write(message)

    for _ in range(outstanding):
        await send()
    while sent:
        answer = await opened.read()
        start, label = sent.popleft()
        seconds.append(perf_counter() - start)
        if answer.HasField("refusal"):
            raise RuntimeError(f"the service refused a call of the benchmark: {answer.refusal.message}")
        await send(label, answer.route.worker)
    await opened.done_writing()
    await opened.read()  # the end of the stream
    return seconds


def route() -> pb.RouteRequest:
    return pb.RouteRequest(request_id=new_id(), label=next(_labels))


def release(label: str, worker: str) -> pb.ReleaseRequest:
    return pb.ReleaseRequest(request_id=new_id(), label=label, worker=worker)


def new_id() -> str:
    """As long as a UUID, and cheaper: the client's cost is none of the server's."""
    return f"{next(_numbers):036d}"


def calls_in_process() -> Subject:
    """The servicer's calls without a transport, messages included: a route and its release an operation."""
    calls = RouterCalls(RoutingTable(dict.fromkeys(worker_names(WORKERS), 1.0)))
    owner = Owner()

    def subject(operations: int) -> None:
        for _ in range(operations):
            request = route()
            answer = calls.route(request, owner)
            calls.release(release(request.label, answer.worker), owner)

    return subject
