"""Calls of a client with threads: sent again until they are answered, and waits that can be interrupted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast

import grpc

from coresched.client.credentials import blocking_channel
from coresched.client.errors import BatchClosedError, ServiceError, SessionLostError
from coresched.client.lookup import Lookup
from coresched.client.remote.attempts import ATTEMPT_S, CHANNEL_OPTIONS, delays, passing
from coresched.client.remote.moving import BlockingMovingChannel
from coresched.client.remote.options import Connection
from coresched.client.remote.records import ReportPages, summary
from coresched.client.remote.session import Session
from coresched.v1 import batches_pb2 as pb
from coresched.v1.batches_pb2_grpc import BatchesStub

CLEANUP_S = 5.0
"""Seconds that a block which raised waits for the service to know."""

HEARD_S = 0.02
"""Seconds until the service should have heard what was sent before."""


def _opened(connection: Connection) -> grpc.Channel:
    return blocking_channel(
        connection.target,
        token=connection.token,
        ca=connection.ca,
        certificate=connection.certificate,
        key=connection.key,
        options=CHANNEL_OPTIONS,
    )


class BlockingLink:
    """One channel to the service, for any threads of one process."""

    def __init__(self, service: Connection | Lookup, session: Session) -> None:
        self.session = session
        self.claims = threading.Lock()
        """Held from submitting a sample to sending its claim: admission is in the order of claims."""
        self.moving: BlockingMovingChannel | None = None
        if isinstance(service, Lookup):
            self.moving = BlockingMovingChannel(service, _opened)
        self._channel = self.moving or _opened(cast(Connection, service))
        self.stub = cast(Any, BatchesStub)(self._channel)
        self._left = threading.Event()
        self._beats = threading.Thread(target=self._beat, name="coresched heartbeat", daemon=True)

    def call(self, method: Any, request: Any, *, last: bool = False, within_s: float | None = None) -> Any:
        """The reply. `last`: the session may be over. ServiceError if there is none `within_s` seconds.

        Raises what `Session.check` and `Session.failed` raise.
        """
        pauses = delays()
        until = None if within_s is None else time.monotonic() + within_s
        moving, move = self.moving, 0
        while True:
            if not last:
                self.session.check()
            left_s = ATTEMPT_S if until is None else min(ATTEMPT_S, until - time.monotonic())
            if left_s <= 0:
                raise ServiceError(f"no answer within {within_s:g} s", "DEADLINE_EXCEEDED")
            try:
                if moving is not None:
                    move = moving.arrive(min(left_s, self.session.left_s()))
                reply = method(request, timeout=left_s)
            except grpc.RpcError as error:
                code, message = _status(error)
                if moving is not None and passing(code):
                    moving.doubt(move)
            except ConnectionError as error:  # of a lookup
                code, message = grpc.StatusCode.UNAVAILABLE, str(error)
            else:
                self.session.answered()
                return reply
            self.session.failed(code, message)  # out here, so that what it raises stands alone
            time.sleep(min(next(pauses), self.session.left_s()))

    def try_call(self, method: Any, request: Any) -> None:
        """For a block that raised, whose error goes on whatever becomes of the call."""
        with suppress(ServiceError, BatchClosedError):
            self.call(method, request, within_s=CLEANUP_S)

    def submit(self, names: list[str]) -> list[int]:
        request = self.session.submission(names)
        return list(self.call(self.stub.SubmitSamples, request).states)

    def begin(self) -> None:
        self._beats.start()

    def _beat(self) -> None:
        """Heartbeats until the session is over."""
        request = pb.HeartbeatRequest(session=self.session.name)
        while not self._left.wait(self.session.beat_s):
            try:
                reply = self.call(self.stub.Heartbeat, request)
            except (SessionLostError, BatchClosedError):
                return
            except ServiceError:
                continue
            except ValueError:  # gRPC's, for a channel that was closed meanwhile
                return
            self.session.progress = summary(reply.progress)
            if reply.progress.closed:
                self.session.closed()
                return

    def report(self, *, last: bool = False, within_s: float | None = None) -> None:
        pages = ReportPages(self.session.asked.batch)
        while not pages.add(self.call(self.stub.GetReport, pages.request(), last=last, within_s=within_s)):
            pass
        self.session.reported(pages.report())

    def close(self) -> None:
        self._left.set()
        self._channel.close()


class BlockingWait:
    """A call that waits, and a thread that waits for it."""

    def __init__(self, link: BlockingLink, method: Any, request: Any, gone: Callable[[], Exception]) -> None:
        """`gone` is what `reply` raises if the wait was given up."""
        self._session = link.session
        self._moving = link.moving
        self._move = 0
        self._method = method
        self._request = request
        self._gone = gone
        self._given_up = False
        self._woken = threading.Event()
        self._call: Any = None
        self._failure: Exception | None = None

    def send(self) -> BlockingWait:
        """Send the call; to be done once, before `reply`."""
        self._session.on_over(self, self.give_up)
        if self._moving is not None:
            self._move = self._moving.move
        self._send()
        return self

    def _send(self) -> None:
        if threading.current_thread() is threading.main_thread():
            # KeyboardInterrupt strikes in the main thread only, and gRPC does not survive it inside a call.
            thread = threading.Thread(target=self._send_here, name="coresched call", daemon=True)
            thread.start()
            thread.join()
        else:
            self._send_here()

    def _send_here(self) -> None:
        try:
            self._call = call = self._method.future(self._request)
            call.add_done_callback(lambda _: self._woken.set())
            if self._given_up:
                call.cancel()
        except Exception as error:  # of the channel, which was closed meanwhile
            self._failure = error
            self._woken.set()

    def give_up(self) -> None:
        """The place in the queue is free. From any thread, once or more."""
        self._given_up = True
        self._woken.set()
        if self._call is not None:
            self._call.cancel()

    @property
    def refused(self) -> bool:
        """Whether it has ended without what it waited for."""
        if self._given_up or self._failure is not None:
            return True
        call = self._call
        return call is not None and call.done() and (call.cancelled() or call.exception() is not None)

    def reply(self) -> Any:
        """Waits. An exception in the wait, such as KeyboardInterrupt, leaves the call under way."""
        pauses = delays()
        session = self._session
        # A signal that comes just before the main thread sleeps is seen when it looks up next.
        look_s = 0.5 if threading.current_thread() is threading.main_thread() else None
        try:
            while True:
                while not self._woken.wait(
                    look_s
                ):  # not the call's own result(), which polls in every thread
                    pass
                if self._given_up:
                    raise self._gone()
                if self._failure is not None:
                    raise self._failure
                error = self._call.exception()
                if error is None:
                    session.answered()
                    return self._call.result()
                session.failed(*_status(error))
                if self._moving is not None:
                    self._moving.doubt(self._move)
                time.sleep(min(next(pauses), session.left_s()))
                session.check()
                self._arrive(pauses)
                self._woken.clear()
                self._send()
        finally:
            session.off(self)

    def _arrive(self, pauses: Iterator[float]) -> None:
        """Know where the service is, before the call is sent again."""
        while self._moving is not None:
            try:
                self._move = self._moving.arrive(self._session.left_s())
                return
            except ConnectionError as error:
                self._session.failed(grpc.StatusCode.UNAVAILABLE, str(error))
            time.sleep(min(next(pauses), self._session.left_s()))
            self._session.check()


def _status(error: Any) -> tuple[grpc.StatusCode, str]:
    return error.code(), error.details() or ""
