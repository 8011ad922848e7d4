"""The transport for `httpx.Client`."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType

import httpx

from coresched.client.local import ROUTING_HEADER
from coresched.client.recorded import end_recording_here
from coresched.client.routed import (
    Claim,
    check_known,
    flight_of_turn,
    own_or_given,
)
from coresched.client.shared import Flight, Router
from coresched.httpx.address import AddressBook
from coresched.httpx.counted import counted
from coresched.httpx.recorded import failed, sent
from coresched.httpx.sending import LIMITS, NO_CONNECTION, check_factory
from coresched.recording.requests import RequestRecord


class SyncTransport(httpx.BaseTransport):
    """What Transport is, for `httpx.Client` and any number of threads. `inner` is called once."""

    def __init__(
        self,
        workers: Iterable[str] | Mapping[str, str],
        *,
        weights: Mapping[str, float] | None = None,
        load_bound: float = 1.25,
        virtual_nodes: int = 128,
        slack: int = 0,
        router: Router | None = None,
        label_header: str = ROUTING_HEADER,
        inner: Callable[[], httpx.BaseTransport] | None = None,
        record: str | os.PathLike[str] | None = None,
    ) -> None:
        self._book = AddressBook(workers, label_header)
        check_factory(inner)
        if router is not None and inspect.iscoroutinefunction(getattr(router, "route", None)):
            raise TypeError(
                f"router must route without waiting for SyncTransport, got {type(router).__name__}"
            )
        self.router = own_or_given(self._book.urls, weights, router, load_bound, virtual_nodes, slack)
        """The router given, or the SharedRouter made from the options."""
        self._record = None if record is None else RequestRecord(record, "transport")
        self._inner = httpx.HTTPTransport(limits=LIMITS) if inner is None else inner()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        claim = self._book.claim(request)
        tried: tuple[str, ...] = ()
        while True:
            flight = self._place(claim, tried)
            attempt = sent(self._record, request, claim.label, flight.worker)
            try:
                addressed = self._book.addressed(request, claim.label, flight.worker)
                response = self._inner.handle_request(addressed)
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

    def _place(self, claim: Claim, exclude: Collection[str]) -> Flight:
        if claim.turn_worker is not None:
            return flight_of_turn(claim, claim.turn_worker, self._book.urls)
        return check_known(self.router.route(claim.label, exclude), self._book.urls)

    def close(self) -> None:
        """Close the connections."""
        self._close(None)

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self._close(kind)

    def _close(self, kind: type[BaseException] | None) -> None:
        self._inner.close()
        if self._record is not None:
            end_recording_here(self._record, kind)
