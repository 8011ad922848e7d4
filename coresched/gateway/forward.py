"""One request to its worker and the answer back, counted in flight for exactly that long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, NoReturn

import aiohttp
from aiohttp import hdrs, web

from coresched.gateway import headers
from coresched.gateway.fleet import Fleet, NoWorkerError
from coresched.gateway.refusal import RefusedError
from coresched.gateway.workers import Worker

# A short answer whose length is known goes on in one piece, which saves a wake-up and a write.
_WHOLE_BYTES = 64 * 1024

# What aiohttp adds of its own unless it is told not to.
_AUTO_HEADERS = (hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE, hdrs.USER_AGENT)

# Nothing was sent: there was no connection to send it on.
_NO_CONNECTION = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)

_WORKER_FAILURES = (aiohttp.ClientError, OSError, asyncio.TimeoutError)


class Call(NamedTuple):
    """What goes to a worker. Without a label it is no inference request, and any worker may answer it."""

    path: str
    query: str | None
    label: str | None
    body: bytes


class Forwarder:
    """Sends calls to the workers of a fleet; for one event loop."""

    def __init__(self, fleet: Fleet, session: aiohttp.ClientSession, *, retry_after_s: int) -> None:
        self.fleet = fleet
        self._session = session
        self._retry_after_s = retry_after_s

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
            worker = self._worker(call, failed)
            try:
                response = await self._sent(request.method, worker, call, kept)
                if response is not None:
                    return await self._passed_on(request, response, worker, last)
            finally:
                if call.label is not None:
                    self.fleet.release(worker)
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

    def _worker(self, call: Call, failed: list[Worker]) -> Worker:
        try:
            return self.fleet.first(failed) if call.label is None else self.fleet.route(call.label, failed)
        except NoWorkerError:
            self.refuse_without_worker()

    async def _sent(
        self, method: str, worker: Worker, call: Call, kept: headers.Headers
    ) -> aiohttp.ClientResponse | None:
        """The answer once its headers are there; None without a connection. Raises RefusedError (502)."""
        try:
            return await self._session.request(
                method,
                worker.url(call.path, call.query),
                headers=kept,
                data=None if call.label is None else call.body,
                allow_redirects=False,
                skip_auto_headers=[name for name in _AUTO_HEADERS if name not in kept] or None,
            )
        except _NO_CONNECTION as error:
            self.fleet.unreachable(worker, str(error))
            return None
        except _WORKER_FAILURES as error:
            reason = str(error) or type(error).__name__
            self.fleet.reset(worker, reason)
            self._refuse_failure(worker, reason)

    def _refuse_failure(self, worker: Worker, reason: str) -> NoReturn:
        raise RefusedError(
            502,
            "worker_failed",
            f"worker {worker.name} failed before its answer began: {reason}; it may have executed the call",
        )

    async def _passed_on(
        self,
        request: web.BaseRequest,
        response: aiohttp.ClientResponse,
        worker: Worker,
        last: Callable[[], bool],
    ) -> web.StreamResponse:
        try:
            try:
                kept = headers.to_client(response.headers, worker.name)
            except headers.HeaderTextError as error:
                self._refuse_failure(worker, str(error))
            length = response.content_length
            if length is not None and length <= _WHOLE_BYTES:
                return await self._whole(response, kept, worker)
            answer = web.StreamResponse(status=response.status, reason=response.reason, headers=kept)
            if last():
                answer.force_close()
            await answer.prepare(request)
            await self._stream(request, response, answer, worker)
            return answer
        finally:
            response.close()  # what was read to its end has given its connection back already

    async def _whole(
        self, response: aiohttp.ClientResponse, kept: headers.Headers, worker: Worker
    ) -> web.StreamResponse:
        try:
            content = response.content
            body = content.read_nowait() if content.is_eof() else await content.read()
        except _WORKER_FAILURES as error:
            self.fleet.interrupted(worker)
            self._refuse_failure(worker, str(error) or type(error).__name__)
        return web.Response(status=response.status, reason=response.reason, headers=kept, body=body)

    async def _stream(
        self,
        request: web.BaseRequest,
        response: aiohttp.ClientResponse,
        answer: web.StreamResponse,
        worker: Worker,
    ) -> None:
        """Pass the body on as it comes. If it breaks off, so does the client's connection."""
        while True:
            try:
                piece = await response.content.readany()
            except _WORKER_FAILURES:
                self.fleet.interrupted(worker)
                if request.transport is not None:
                    request.transport.abort()
                return
            if not piece:
                return
            await answer.write(piece)
