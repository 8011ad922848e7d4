"""One request to its worker and the answer back, counted in flight for exactly that long."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, NoReturn

from aiohttp import web

from coresched.gateway import headers
from coresched.gateway.connection import WorkerConnection, WorkerFailedError
from coresched.gateway.members import Members, NoWorkerError, Placed, RouterAwayError
from coresched.gateway.pool import Connections, NoConnectionError
from coresched.gateway.refusal import RefusedError
from coresched.gateway.traffic import Traffic
from coresched.gateway.workers import Worker
from coresched.recording.requests import AttemptRecord, RequestRecord


class Call(NamedTuple):
    """What goes to a worker. Without a label it is no inference request, and any worker may answer it.

    `arrived` is when the request did, on the clock of the gateway's Traffic.
    """

    path: str
    query: str | None
    label: str | None
    body: bytes
    arrived: float


class Forwarder:
    """Sends calls to the workers of a fleet; for one event loop."""

    def __init__(
        self,
        fleet: Members,
        connections: Connections,
        traffic: Traffic,
        *,
        retry_after_s: int,
        record: RequestRecord | None = None,
    ) -> None:
        self.fleet = fleet
        self.traffic = traffic
        self._connections = connections
        self._retry_after_s = retry_after_s
        self._record = record

    async def forward(
        self, request: web.BaseRequest, call: Call, *, last: Callable[[], bool]
    ) -> web.StreamResponse:
        """The worker's answer, passed on to the client. A call that found no connection is tried once more.

        `last` tells whether the client's connection is to close after the answer. Raises RefusedError: 400
        for a header, 502 if the worker failed before the answer began, 503 if none could be reached.
        """
        try:
            kept = headers.to_worker(request.headers, call.label)
        except headers.HeaderTextError as error:
            raise RefusedError(400, "invalid_request", str(error)) from None
        failed: list[Worker] = []
        while True:
            worker, end = await self._placed(call, failed)
            attempt = None
            if self._record is not None and call.label is not None:
                attempt = self._record.attempt(call.label, worker.name)
            try:
                connection = await self._connection(worker)
                if connection is not None:
                    try:
                        await self._ask(request.method, connection, worker, call, kept)
                        return await self._passed_on(request, connection, worker, call, last, attempt)
                    finally:
                        self._connections.give_back(worker, connection)
            finally:
                if attempt is not None:
                    attempt.ended("it got no whole answer")  # unless it did
                end()
            if failed:
                self.refuse_without_worker()
            failed.append(worker)

    def refuse_without_worker(self) -> NoReturn:
        """Raise the RefusedError (503) of a call that reached no worker."""
        raise RefusedError(
            503,
            "no_healthy_worker",
            f"none of the {len(self.fleet.workers)} workers can be reached, and nothing was executed; "
            f"try again in {self._retry_after_s} s",
            retry_after_s=self._retry_after_s,
        )

    async def _placed(self, call: Call, failed: list[Worker]) -> Placed:
        try:
            if call.label is None:
                return Placed(self.fleet.first(failed), _nothing_counted)
            return await self.fleet.place(call.label, failed)
        except NoWorkerError:
            self.refuse_without_worker()
        except RouterAwayError as error:
            raise RefusedError(
                503,
                "router_away",
                f"{error}, and nothing was executed; try again in {self._retry_after_s} s",
                retry_after_s=self._retry_after_s,
            ) from None

    async def _connection(self, worker: Worker) -> WorkerConnection | None:
        try:
            return await self._connections.take(worker)
        except NoConnectionError as error:
            self.fleet.unreachable(worker, str(error))
            return None

    async def _ask(
        self, method: str, connection: WorkerConnection, worker: Worker, call: Call, kept: headers.Headers
    ) -> None:
        """Returns once the headers of the answer are there. Raises RefusedError (502)."""
        target = call.path if call.query is None else f"{call.path}?{call.query}"
        length = None if call.label is None else len(call.body)
        head = headers.request_head(f"{method} {worker.prefix}{target}", worker.authority, kept, length)
        try:
            await connection.ask(head, call.body)
        except WorkerFailedError as error:
            if error.began:
                self.fleet.interrupted(worker)
            else:
                self.fleet.reset(worker, str(error))
            self._refuse_failure(worker, str(error))

    def _refuse_failure(self, worker: Worker, reason: str) -> NoReturn:
        raise RefusedError(
            502,
            "worker_failed",
            f"worker {worker.name} failed before its answer began: {reason}; it may have executed the call",
        )

    async def _passed_on(
        self,
        request: web.BaseRequest,
        connection: WorkerConnection,
        worker: Worker,
        call: Call,
        last: Callable[[], bool],
        attempt: AttemptRecord | None,
    ) -> web.StreamResponse:
        try:
            kept = headers.to_client(connection.headers, worker.name)
        except headers.HeaderTextError as error:
            self._refuse_failure(worker, str(error))
        if call.label is not None:
            self.traffic.answered(connection.status)
        if attempt is not None:
            attempt.answered(connection.status, dict(connection.headers))
        if connection.body is not None:
            if attempt is not None:
                attempt.piece(connection.body)
                attempt.ended()
            if call.label is not None:
                self.traffic.whole(call.arrived)
            return web.Response(
                status=connection.status, reason=connection.reason, headers=kept, body=connection.body
            )
        answer = web.StreamResponse(status=connection.status, reason=connection.reason, headers=kept)
        if last():
            answer.force_close()
        await answer.prepare(request)
        await self._stream(request, connection, answer, worker, call, attempt)
        return answer

    async def _stream(
        self,
        request: web.BaseRequest,
        connection: WorkerConnection,
        answer: web.StreamResponse,
        worker: Worker,
        call: Call,
        attempt: AttemptRecord | None,
    ) -> None:
        """Pass the body on as it comes. If it breaks off, so does the client's connection."""
        measured = call.label is not None
        begun = not measured
        while True:
            try:
                piece = await connection.piece()
            except WorkerFailedError:
                self.fleet.interrupted(worker)
                if request.transport is not None:
                    request.transport.abort()
                return
            if not begun:
                begun = True
                self.traffic.first_byte(call.arrived)
            if attempt is not None:
                attempt.piece(piece)
            if not piece:
                if attempt is not None:
                    attempt.ended()
                if measured:
                    self.traffic.ended(call.arrived)
                return
            await answer.write(piece)


def _nothing_counted() -> None:
    """The end of what is no inference request."""
