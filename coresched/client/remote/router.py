"""The router of `coresched serve` as an AsyncRouter: every process that routes by it shares one count."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Literal, NamedTuple, NoReturn, cast
from uuid import uuid4

import grpc

from coresched.client.credentials import channel
from coresched.client.errors import ServiceError
from coresched.client.remote.attempts import CHANNEL_OPTIONS, delays, passing, refusal
from coresched.client.remote.options import Connection
from coresched.client.shared import Flight
from coresched.v1 import router_pb2 as pb
from coresched.v1.router_pb2_grpc import RouterStub

_LONGEST_PAUSE_S = 1.0
_STANDINGS: dict[int, Literal["routable", "draining", "removed"]] = {
    pb.WORKER_STATE_ROUTABLE: "routable",
    pb.WORKER_STATE_DRAINING: "draining",
    pb.WORKER_STATE_REMOVED: "removed",
}

_logger = logging.getLogger("coresched.client")


class ServiceAwayError(ServiceError):
    """The service did not answer for as long as the caller wanted to wait; nothing was routed."""


class UnknownExcludeError(ServiceError):
    """`exclude` names a worker that the service does not know (any more): ask for the workers again."""


class ServiceWorker(NamedTuple):
    """One worker as the service tells of it; `in_flight` is L(w) over all its clients, in requests."""

    name: str
    weight: float
    in_flight: int
    standing: Literal["routable", "draining", "removed"]


@dataclass(slots=True)
class _Asked:
    call: pb.RouteRequest
    answer: asyncio.Future[Flight]
    answered: bool = False
    """By the service, whether or not somebody waits for it."""


class ServiceRouter:
    """Routes by the one count that a service keeps, over one stream; for one event loop.

    The service counts what was routed on a stream until it is released or the stream ends, so a process that
    dies leaves nothing behind. When the stream breaks and this process lives, a new one is opened, on which
    every request that is still in flight is held again before anything is routed: the counts are exact after
    a restart of the service, too. Nothing is ever chosen without the service.
    """

    def __init__(self, connection: Connection, *, wait_s: float = 5.0) -> None:
        """`wait_s`: seconds that a route waits for a service that does not answer. Make it with `routing`."""
        self._target = connection.target
        self._tls = connection.tls
        self._wait_s = wait_s
        self._loop = asyncio.get_running_loop()
        self._channel = channel(
            connection.target,
            token=connection.token,
            ca=connection.ca,
            certificate=connection.certificate,
            key=connection.key,
            options=CHANNEL_OPTIONS,
        )
        self._stub = cast(Any, RouterStub)(self._channel)
        self._ids = map(partial("{}-{}".format, uuid4().hex), count())
        self._asked: dict[str, _Asked] = {}
        self._flights: dict[str, tuple[str, str]] = {}  # label and worker, by the id of the route
        self._given_up: dict[str, str] = {}  # label, by the id of a route whose answer nobody waits for
        self._holds: dict[str, str] = {}  # the id of the route, by that of the hold
        self._outgoing: deque[pb.RouteStreamRequest] = deque()
        self._wake = asyncio.Event()
        self._streaming = False
        self._why = "no answer yet"

    async def route(self, label: str, exclude: Collection[str] = ()) -> Flight:
        """Choose a worker outside `exclude` and count the request there until the flight ends.

        Cancelled, nothing stays counted. Raises LookupError if no worker is left, UnknownExcludeError,
        ValueError for a label that the service refuses, ServiceAwayError after `wait_s` without an answer,
        also across a restart of the service.
        """
        name = next(self._ids)
        asked = _Asked(
            pb.RouteRequest(request_id=name, label=label, exclude=exclude), self._loop.create_future()
        )
        self._asked[name] = asked
        self._send(pb.RouteStreamRequest(route=asked.call))
        timer = self._loop.call_later(self._wait_s, self._give_up, name)
        try:
            return await asked.answer
        except asyncio.CancelledError:
            if asked.answer.done() and not asked.answer.cancelled() and asked.answer.exception() is None:
                asked.answer.result().end()
            raise
        finally:
            timer.cancel()
            del self._asked[name]
            if not asked.answered and self._streaming:
                self._given_up[name] = label  # an answer that still comes is released at once

    async def workers(self) -> list[ServiceWorker]:
        """The workers in order of registration. Raises ServiceAwayError or ServiceError after one attempt."""
        try:
            reply = await self._stub.ListWorkers(pb.ListWorkersRequest(), timeout=self._wait_s)
        except grpc.aio.AioRpcError as error:
            code, message = error.code(), error.details() or ""
        else:
            return [
                ServiceWorker(one.worker, one.weight, one.in_flight, _STANDINGS[one.state])
                for one in reply.workers
            ]
        if passing(code):
            self._refuse_away(f"{code.name}: {' '.join(message.split())}")
        raise refusal(code, message)

    async def loads(self) -> dict[str, int]:
        """L(w), requests in flight of all the service's clients, by worker. Raises as `workers`."""
        return {worker.name: worker.in_flight for worker in await self.workers()}

    @property
    def wait_s(self) -> float:
        return self._wait_s

    def _refuse_away(self, why: str) -> NoReturn:
        raise ServiceAwayError(
            f"the service {self._target} has not answered for {self._wait_s:g} s ({why})", "UNAVAILABLE"
        )

    def _give_up(self, name: str) -> None:
        asked = self._asked.get(name)
        if asked is not None and not asked.answer.done():
            try:
                self._refuse_away(self._why)
            except ServiceAwayError as error:
                asked.answer.set_exception(error)

    def _send(self, message: pb.RouteStreamRequest) -> None:
        """On the stream, if there is one; the next one begins with all that matters then."""
        if self._streaming:
            self._outgoing.append(message)
            self._wake.set()

    async def close(self) -> None:
        """Close the channel, once `run` has ended."""
        await self._channel.close()

    # A flight ends in any thread, also within a garbage collection.

    def _end(self, name: str, worker: str) -> None:
        with suppress(RuntimeError):  # the loop is closed, and the stream with it
            self._loop.call_soon_threadsafe(self._ended, name)

    def _ended(self, name: str) -> None:
        flight = self._flights.pop(name, None)
        if flight is not None:
            self._release(*flight)

    def _release(self, label: str, worker: str) -> None:
        call = pb.ReleaseRequest(request_id=next(self._ids), label=label, worker=worker)
        self._send(pb.RouteStreamRequest(release=call))

    # The stream.

    async def run(self) -> None:
        """Keep a stream open until cancelled."""
        pauses: Iterator[float] = delays()
        while True:
            call = self._stub.RouteStream()
            try:
                answered = await self._stream(call)
            finally:
                call.cancel()
            code = await call.code()
            self._why = f"{code.name}: {' '.join((await call.details() or '').split())}"
            if answered:  # of the attempts that follow, each of which may fail, the routes that wait tell
                _logger.warning("the stream to %s ended (%s); opening another", self._target, self._why)
                pauses = delays()
            await asyncio.sleep(min(next(pauses), _LONGEST_PAUSE_S))

    async def _stream(self, call: Any) -> bool:
        """Read answers until the stream ends; whether there was one."""
        self._begin()
        writing = asyncio.create_task(self._write(call))
        answered = False
        try:
            while (answer := await call.read()) is not grpc.aio.EOF:
                answered = True
                self._take(answer)
        except grpc.aio.AioRpcError:
            pass  # its code and details are the call's
        finally:
            self._streaming = False
            writing.cancel()
            with suppress(asyncio.CancelledError, grpc.aio.AioRpcError, grpc.aio.UsageError):
                await writing
        return answered

    def _begin(self) -> None:
        """What a new stream begins with: requests in flight, then those that wait to be routed."""
        self._outgoing.clear()
        self._holds.clear()
        self._given_up.clear()
        for name, (label, worker) in self._flights.items():
            hold = next(self._ids)
            self._holds[hold] = name
            call = pb.HoldRequest(request_id=hold, label=label, worker=worker)
            self._outgoing.append(pb.RouteStreamRequest(hold=call))
        self._outgoing.extend(pb.RouteStreamRequest(route=asked.call) for asked in self._asked.values())
        self._streaming = True
        self._wake.set()

    async def _write(self, call: Any) -> None:
        while True:
            while self._outgoing:
                await call.write(self._outgoing.popleft())
            self._wake.clear()
            await self._wake.wait()

    def _take(self, answer: pb.RouteStreamResponse) -> None:
        kind = answer.WhichOneof("answer")
        held = self._holds.pop(answer.request_id, None)
        if kind == "route":
            self._routed(answer.request_id, answer.route.worker)
        elif kind == "refusal":
            if held is not None:  # its worker is not known any more, so nobody counts what is there
                self._flights.pop(held, None)
            elif answer.request_id in self._asked or answer.request_id in self._given_up:
                self._refused(answer.request_id, answer.refusal)
            else:  # a release: the stream holds more than this process knows
                _logger.error("%s refused a release: %s", self._target, answer.refusal.message)

    def _routed(self, name: str, worker: str) -> None:
        asked = self._asked.get(name)
        if asked is None:
            self._release(self._given_up.pop(name), worker)
            return
        asked.answered = True
        if asked.answer.done():
            self._release(asked.call.label, worker)
            return
        self._flights[name] = (asked.call.label, worker)
        asked.answer.set_result(Flight(worker, partial(self._end, name)))

    def _refused(self, name: str, why: pb.Refusal) -> None:
        asked = self._asked.get(name)
        if asked is None:
            del self._given_up[name]
            return
        asked.answered = True
        if asked.answer.done():
            return
        error: Exception
        if why.code == pb.REFUSAL_CODE_FAILED_PRECONDITION:
            error = LookupError(why.message)
        elif why.code == pb.REFUSAL_CODE_NOT_FOUND and why.field == "exclude":
            error = UnknownExcludeError(why.message, "NOT_FOUND")
        elif why.code == pb.REFUSAL_CODE_INVALID_ARGUMENT:
            error = ValueError(why.message)
        else:
            error = ServiceError(why.message, pb.RefusalCode.Name(why.code))
        asked.answer.set_exception(error)


@asynccontextmanager
async def routing(connection: Connection, *, wait_s: float = 5.0) -> AsyncIterator[ServiceRouter]:
    """A ServiceRouter with its stream; in the end the service releases what is still in flight on it.

    Raises what `Connection.check` raises.
    """
    router = ServiceRouter(connection, wait_s=wait_s)
    running = asyncio.create_task(router.run())
    try:
        yield router
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await router.close()
