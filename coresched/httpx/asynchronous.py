"""The transport for `httpx.AsyncClient`."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from types import TracebackType

import httpx

from coresched.client.local import ROUTING_HEADER
from coresched.client.recorded import end_recording
from coresched.client.routed import (
    Claim,
    check_known,
    flight_of_turn,
    own_or_given,
)
from coresched.client.shared import AsyncRouter, Flight, Router
from coresched.httpx.address import AddressBook
from coresched.httpx.counted import counted
from coresched.httpx.recorded import failed, sent
from coresched.httpx.sending import LIMITS, NO_CONNECTION, check_factory
from coresched.recording.requests import RequestRecord


class Transport(httpx.AsyncBaseTransport):
    """Routes each request of an `httpx.AsyncClient` to the worker of its trajectory label.

    `workers`: base URLs, or a mapping from names to them. A path in a worker's URL goes before the request's,
    which has the /v1 already: a worker's URL that ends with it is refused.
    `weights`: relative capacities by name, 1 for who is left out. `load_bound`, `virtual_nodes`, `slack`: as
    for LoadBoundedRouter. `router`: in their place, a SharedRouter over the same names, to share its counts
    between transports. `label_header`: carries the label to the worker; a request that has it already is
    routed by that. `inner`: makes the transport that sends, one for each event loop; by default an
    `httpx.AsyncHTTPTransport` with as many connections as there are requests. `record`: a folder in which
    each request for a reply is written down, with its usage; closing raises RecordingError if one is missing.

    A request is in flight on its worker until its response body ends, however that comes. Inside an open
    turn of a Batch with workers it goes to the turn's worker, and the turn counts it. Elsewhere a request
    that gets no connection is tried on one other worker; nothing had been sent by then.

    For asyncio, and for several event loops at once. Closing it, as its client does, closes the connections
    of all of them: give each client a Transport of its own.
    Raises TypeError or ValueError for a bad argument. A request raises ValueError without a label, and
    `httpx.ConnectError` or `httpx.ConnectTimeout`, naming the workers, without a connection.
    """

    def __init__(
        self,
        workers: Iterable[str] | Mapping[str, str],
        *,
        weights: Mapping[str, float] | None = None,
        load_bound: float = 1.25,
        virtual_nodes: int = 128,
        slack: int = 0,
        router: Router | AsyncRouter | None = None,
        label_header: str = ROUTING_HEADER,
        inner: Callable[[], httpx.AsyncBaseTransport] | None = None,
        record: str | os.PathLike[str] | None = None,
    ) -> None:
        self._book = AddressBook(workers, label_header)
        check_factory(inner)
        self.router = own_or_given(self._book.urls, weights, router, load_bound, virtual_nodes, slack)
        """The router given, or the SharedRouter made from the options."""
        self._make_inner = inner or partial(  # certificates are loaded once, not for every loop
            httpx.AsyncHTTPTransport, verify=httpx.create_ssl_context(), limits=LIMITS
        )
        self._record = None if record is None else RequestRecord(record, "transport")
        self._lock = threading.Lock()
        # Connections refer to their loop, so weak keys would keep both; closed loops are dropped instead.
        self._inners: dict[asyncio.AbstractEventLoop, httpx.AsyncBaseTransport] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        inner = self._inner()
        claim = self._book.claim(request)
        tried: tuple[str, ...] = ()
        while True:
            flight = await self._place(claim, tried)
            attempt = sent(self._record, request, claim.label, flight.worker)
            try:
                addressed = self._book.addressed(request, claim.label, flight.worker)
                response = await inner.handle_async_request(addressed)
                self._book.answered(response, flight)
                return counted(response, flight, attempt)
            except NO_CONNECTION as error:
                flight.end()
                failed(attempt, error)
                tried += (flight.worker,)
                if not self._book.may_try_another(claim, tried):
                    raise self._book.unreachable(request, tried, error) from error
            except BaseException as error:
                flight.end()
                failed(attempt, error)
                raise

    async def _place(self, claim: Claim, exclude: Collection[str]) -> Flight:
        if claim.turn_worker is not None:
            return flight_of_turn(claim, claim.turn_worker, self._book.urls)
        chosen = self.router.route(claim.label, exclude)
        return check_known(await chosen if isinstance(chosen, Awaitable) else chosen, self._book.urls)

    def _inner(self) -> httpx.AsyncBaseTransport:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._closed:
                raise RuntimeError(
                    "this Transport was closed, by its client or by aclose; "
                    "give each client its own, and share a SharedRouter between them"
                )
            inner = self._inners.get(loop)
            if inner is None:
                for other in [other for other in self._inners if other.is_closed()]:
                    del self._inners[other]
                inner = self._inners[loop] = self._make_inner()
            return inner

    async def aclose(self) -> None:
        """Close the connections of this loop and have other running loops close theirs; for good."""
        await self._close(None)

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self._close(kind)

    async def _close(self, kind: type[BaseException] | None) -> None:
        here = asyncio.get_running_loop()
        with self._lock:
            self._closed = True
            inners, self._inners = self._inners, {}
        for loop, inner in inners.items():
            if loop is not here:
                with suppress(RuntimeError):  # closed by now, and what it had with it
                    loop.call_soon_threadsafe(self._close_there, loop, inner)
        if here in inners:
            await inners[here].aclose()
        if self._record is not None:
            await end_recording(self._record, kind)

    def _close_there(self, loop: asyncio.AbstractEventLoop, inner: httpx.AsyncBaseTransport) -> None:
        async def close() -> None:
            await inner.aclose()

        task = loop.create_task(close())
        self._closing.add(task)  # a loop holds its tasks weakly
        task.add_done_callback(self._closing.discard)
