"""One request to a server behind the sidecar, and its answer as it comes."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple, NoReturn, Protocol

import aiohttp
from aiohttp import web

from coresched.gateway import headers
from coresched.gateway.fleet import NoWorkerError
from coresched.gateway.headers import Headers
from coresched.gateway.refusal import RefusedError
from coresched.gateway.workers import Worker
from coresched.recording.requests import AttemptRecord, RequestRecord

RETRY_AFTER_S = 5
# Uvicorn drops a connection after 5 s without a request, perhaps in the moment in which one is sent.
_IDLE_CONNECTION_S = 2.0


class Placement(Protocol):
    """Which server takes a request, and how it went there; the gateway's Fleet is one."""

    def route(self, label: str, failed: list[Worker]) -> Worker: ...
    def release(self, worker: Worker) -> None: ...
    def unreachable(self, worker: Worker, reason: str) -> None: ...
    def reset(self, worker: Worker, reason: str) -> None: ...
    def interrupted(self, worker: Worker) -> None: ...


class OneServer:
    """The only server there is; it is tried whatever happened before."""

    def __init__(self, server: Worker) -> None:
        self.server = server

    def route(self, label: str, failed: list[Worker]) -> Worker:
        """The server. Raises NoWorkerError if this request has failed to connect to it."""
        if failed:
            raise NoWorkerError
        self.server.in_flight += 1
        return self.server

    def release(self, worker: Worker) -> None:
        worker.in_flight -= 1

    def unreachable(self, worker: Worker, reason: str) -> None:
        worker.failures += 1

    def reset(self, worker: Worker, reason: str) -> None:
        worker.failures += 1

    def interrupted(self, worker: Worker) -> None:
        worker.failures += 1


class BrokenOffError(Exception):
    """The answer broke off after it had begun."""


class Answer:
    """An answer whose headers are there. `status`, `reason`, and `headers` as the client gets them."""

    def __init__(
        self, response: aiohttp.ClientResponse, kept: Headers, attempt: AttemptRecord | None
    ) -> None:
        self.status = response.status
        self.reason = response.reason or ""
        self.headers = kept
        self.broken = False
        """Whether it broke off after it had begun."""
        self._response = response
        self._attempt = attempt
        if attempt is not None:
            attempt.answered(response.status, {name.lower(): value for name, value in kept.items()})

    @property
    def is_stream(self) -> bool:
        """Whether it is a stream of server-sent events."""
        return self._response.content_type == "text/event-stream"

    async def piece(self) -> bytes:
        """The next piece of the body; empty at its end. Raises BrokenOffError."""
        try:
            piece = await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            self.broken = True
            raise BrokenOffError(str(error) or type(error).__name__) from None
        if self._attempt is not None:
            self._attempt.piece(piece)
            if not piece:
                self._attempt.ended()
        return piece

    async def whole(self) -> bytes:
        """All of the body. Raises BrokenOffError."""
        pieces = []
        while piece := await self.piece():
            pieces.append(piece)
        return b"".join(pieces)


class Request(NamedTuple):
    """What is sent on. `target`: path and query as they came. `label` decides which worker of several."""

    method: str
    target: str
    headers: Headers
    body: bytes | None
    label: str = ""
    sample: str | None = None
    """Whose turn it is, for a recording; None: nobody's."""


class Upstream:
    """Requests to one kind of server, each on a connection that closes if its answer is not awaited."""

    def __init__(
        self,
        placement: Placement,
        session: aiohttp.ClientSession,
        what: str,
        record: RequestRecord | None = None,
    ) -> None:
        """`what`: how errors call the server. `record` is told of the requests that are turns."""
        self._placement = placement
        self._session = session
        self._what = what
        self._record = record

    @asynccontextmanager
    async def asked(self, request: Request) -> AsyncIterator[Answer]:
        """The answer, counted in flight until the block ends; what is not read by then is cancelled.

        A request that found no connection is tried at one other server. Raises RefusedError: 502 if the
        server failed before its answer began, 503 if none could be reached; and BrokenOffError goes on as
        502, so catch it where an answer has begun.
        """
        worker, response, attempt = await self._sent(request)
        try:
            kept = headers.to_client(_pairs(response), worker.name)
            answer = Answer(response, kept, attempt)
            try:
                yield answer
            finally:
                if answer.broken:
                    self._placement.interrupted(worker)
        except (headers.HeaderTextError, BrokenOffError) as error:
            self._refuse_failure(worker, str(error))
        finally:
            _over(attempt)
            response.close() if not response.content.at_eof() else response.release()
            self._placement.release(worker)

    async def _sent(self, request: Request) -> tuple[Worker, aiohttp.ClientResponse, AttemptRecord | None]:
        failed: list[Worker] = []
        while True:
            try:
                worker = self._placement.route(request.label, failed)
            except NoWorkerError:
                self._refuse_unreachable()
            attempt = None
            if self._record is not None and request.sample is not None:
                attempt = self._record.attempt(request.sample, worker.name)
            try:
                response = await self._session.request(
                    request.method,
                    worker.url(request.target),
                    headers=request.headers,
                    # Bytes of more than 1 MiB would be sent in one piece.
                    data=None if request.body is None else io.BytesIO(request.body),
                    allow_redirects=False,
                )
            except (aiohttp.ClientConnectorError, asyncio.TimeoutError) as error:
                _over(attempt)
                self._placement.release(worker)
                self._placement.unreachable(worker, str(error))
                failed.append(worker)
                if len(failed) > 1:
                    self._refuse_unreachable()
            except (aiohttp.ClientError, OSError) as error:
                _over(attempt)
                self._placement.release(worker)
                reason = str(error) or type(error).__name__
                self._placement.reset(worker, reason)
                self._refuse_failure(worker, reason)
            except BaseException:
                _over(attempt)
                self._placement.release(worker)
                raise
            else:
                return worker, response, attempt

    def _refuse_unreachable(self) -> NoReturn:
        raise RefusedError(
            503,
            "no_healthy_worker",
            f"{self._what} cannot be reached, and nothing was executed; try again in {RETRY_AFTER_S} s",
            retry_after_s=RETRY_AFTER_S,
        )

    def _refuse_failure(self, worker: Worker, reason: str) -> NoReturn:
        raise RefusedError(
            502,
            "worker_failed",
            f"{self._what} at {worker.name} failed: {reason}; it may have executed the request",
        )


def _over(attempt: AttemptRecord | None) -> None:
    """It ended without a whole answer, unless that was said before."""
    if attempt is not None:
        attempt.ended("it got no whole answer")


def upstream_session(connect_timeout_s: float) -> aiohttp.ClientSession:
    """It goes nowhere else: no proxies, no cookies; and it adds and decodes nothing."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_CONNECTION_S),
        timeout=aiohttp.ClientTimeout(total=None, connect=connect_timeout_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
    )


async def passed_on(request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
    """The answer, to the client as it comes. If it breaks off, so does the client's connection."""
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=answer.headers)
    await response.prepare(request)
    try:
        while piece := await answer.piece():
            await response.write(piece)
    except BrokenOffError:
        cut_off(request)
        return response
    await response.write_eof()
    return response


def cut_off(request: web.BaseRequest) -> None:
    """Close the client's connection, so that half an answer is not taken for a whole one."""
    if request.transport is not None:
        request.transport.abort()


def _pairs(response: aiohttp.ClientResponse) -> list[tuple[str, str]]:
    return [
        (name.decode("ascii", "replace"), value.decode("utf-8", "surrogateescape"))
        for name, value in response.raw_headers
    ]
