"""Calls of an asyncio client: sent again until they are answered, waited for, seen through a cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import chain
from typing import Any, cast

import grpc

from coresched.client.credentials import channel
from coresched.client.errors import BatchClosedError, ServiceError, SessionLostError
from coresched.client.lookup import Lookup
from coresched.client.remote.attempts import ATTEMPT_S, CHANNEL_OPTIONS, delays, passing
from coresched.client.remote.batching import messages
from coresched.client.remote.moving import MovingChannel
from coresched.client.remote.options import Connection
from coresched.client.remote.records import ReportPages, summary
from coresched.client.remote.session import Session
from coresched.v1 import batches_pb2 as pb
from coresched.v1.batches_pb2_grpc import BatchesStub

Work = Callable[[], Coroutine[Any, Any, object]]

CLEANUP_S = 5.0
"""Seconds that a block which raised, or was cancelled, waits for the service to know."""

HEARD_S = 0.02
"""Seconds until the service should have heard what was sent before."""


def _opened(connection: Connection) -> grpc.aio.Channel:
    return channel(
        connection.target,
        token=connection.token,
        ca=connection.ca,
        certificate=connection.certificate,
        key=connection.key,
        options=CHANNEL_OPTIONS,
    )


class Link:
    """One channel to the service, for one event loop."""

    def __init__(self, service: Connection | Lookup, session: Session) -> None:
        self.loop = asyncio.get_running_loop()
        self.session = session
        self._moving: MovingChannel | None = None
        if isinstance(service, Lookup):
            self._moving = MovingChannel(service, _opened)
        self._channel = self._moving or _opened(cast(Connection, service))
        self.stub = cast(Any, BatchesStub)(self._channel)
        self._unsettled: set[asyncio.Task[None]] = set()
        self._unknown: dict[str, list[asyncio.Future[int]]] = {}  # names to send, and who asks
        self._submitting: asyncio.Task[None] | None = None

    async def call(self, method: Any, request: Any, *, waits: bool = False, last: bool = False) -> Any:
        """The reply. `waits`: it may take any time. `last`: the session may be over.

        Raises what `Session.check` and `Session.failed` raise.
        """
        pauses = delays()
        moving, move = self._moving, 0
        while True:
            if not last:
                self.session.check()
            try:
                if moving is not None:
                    move = await moving.arrive(self.session.left_s())
                reply = await method(request, timeout=None if waits else ATTEMPT_S)
            except grpc.aio.AioRpcError as error:
                code, message = error.code(), error.details() or ""
                if moving is not None and passing(code):
                    moving.doubt(move)
            except ConnectionError as error:  # of a lookup
                code, message = grpc.StatusCode.UNAVAILABLE, str(error)
            else:
                self.session.answered()
                return reply
            self.session.failed(code, message)  # out here, so that what it raises stands alone
            await asyncio.sleep(min(next(pauses), self.session.left_s()))

    async def state_of(self, name: str) -> int:
        """Where the sample stands, which is made known if it is new. Calls made in order arrive in order.

        Names that come in at once travel together.
        """
        answer: asyncio.Future[int] = self.loop.create_future()
        self._unknown.setdefault(name, []).append(answer)
        if self._submitting is None or self._submitting.done():
            self._submitting = self.loop.create_task(self._submit_unknown())
        return await answer

    async def _submit_unknown(self) -> None:
        while self._unknown:
            names = next(messages(self._unknown))
            answers = [self._unknown.pop(name) for name in names]
            try:
                states = await self.submit(names)
            except Exception as error:
                for answer in chain.from_iterable(answers):
                    if not answer.done():
                        answer.set_exception(error)
            else:
                for several, state in zip(answers, states, strict=True):
                    for answer in several:
                        if not answer.done():
                            answer.set_result(state)

    async def submit(self, names: list[str]) -> list[int]:
        request = self.session.submission(names)
        return list((await self.call(self.stub.SubmitSamples, request)).states)

    def see_through(self, work: Work, after: asyncio.Task[None] | None = None) -> asyncio.Task[None]:
        """Begin `work`, once `after` has ended. It goes on whatever becomes of the caller."""

        async def run() -> None:
            if after is not None:
                await asyncio.wait((after,))
            with suppress(ServiceError, BatchClosedError):
                await work()

        task = self.loop.create_task(run())
        self._unsettled.add(task)
        task.add_done_callback(self._unsettled.discard)
        return task

    async def beat(self) -> None:
        """Heartbeats until the session is over."""
        request = pb.HeartbeatRequest(session=self.session.name)
        while True:
            await asyncio.sleep(self.session.beat_s)
            try:
                reply = await self.call(self.stub.Heartbeat, request)
            except (SessionLostError, BatchClosedError):
                return
            except ServiceError:
                continue
            self.session.progress = summary(reply.progress)
            if reply.progress.closed:
                self.session.closed()
                return

    async def report(self, *, last: bool = False) -> None:
        pages = ReportPages(self.session.asked.batch)
        while not pages.add(await self.call(self.stub.GetReport, pages.request(), last=last)):
            pass
        self.session.reported(pages.report())

    async def close(self) -> None:
        for task in self._unsettled:
            task.cancel()
        await self._channel.close()


class Wait:
    """A call that waits, in a task of its own: whoever awaits its reply can be cancelled without it."""

    def __init__(
        self,
        link: Link,
        method: Any,
        request: Any,
        gone: Callable[[], Exception],
        *,
        keep: bool = False,
    ) -> None:
        """`gone` is what `reply` raises if the wait was given up."""
        self._kept = keep
        self._task = link.loop.create_task(link.call(method, request, waits=True))
        self._session = link.session
        self._gone = gone
        link.session.on_over(self, self.give_up)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._session.off(self)
        if not task.cancelled():
            task.exception()  # seen, so that asyncio does not report it when nobody waits any more

    def give_up(self) -> None:
        self._task.cancel()

    @property
    def refused(self) -> bool:
        return self._task.done() and (self._task.cancelled() or self._task.exception() is not None)

    async def reply(self) -> Any:
        """Cancelled, it gives up, unless `keep` was set: the caller ends the wait then."""
        try:
            await asyncio.wait((self._task,))  # raises CancelledError for the caller, not for the task
        except asyncio.CancelledError:
            if not self._kept:
                self.give_up()
            raise
        if self._task.cancelled():
            raise self._gone()
        return self._task.result()
