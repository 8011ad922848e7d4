"""httpx transports that send every request to one smg, which sends it to the worker that LBCH chose."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable

import httpx

import coresched.httpx as direct
from coresched.client.local import ROUTING_HEADER
from coresched.client.routed import Claim
from coresched.client.shared import Flight
from coresched.httpx.address import AddressBook
from coresched_smg.router import SmgRouter

_SERVED_BY = "x-coresched-worker"  # where a recording looks for the worker behind a gateway


def _checked(smg: SmgRouter) -> SmgRouter:
    if not isinstance(smg, SmgRouter):
        raise TypeError(f"smg must be an SmgRouter, such as SmgRouter('http://127.0.0.1:30000'), got {smg!r}")
    return smg


class _ThroughSmg(AddressBook):
    """Requests for a worker as smg gets them."""

    def __init__(self, smg: SmgRouter, label_header: str) -> None:
        super().__init__(smg.workers(), label_header)
        self.urls = smg.addresses  # which grows as workers join
        self._smg = smg

    def addressed(self, request: httpx.Request, label: str, worker: str) -> httpx.Request:
        addressed = super().addressed(request, label, worker)
        addressed.headers.update(self._smg.headers(worker, label))
        return addressed

    def may_try_another(self, claim: Claim, tried: Collection[str]) -> bool:
        return False  # it is smg that gives no connection, whatever the worker

    def answered(self, response: httpx.Response, flight: Flight) -> None:
        served = self._smg.answered(response.headers, flight)
        if served is not None:
            response.headers[_SERVED_BY] = served

    def unreachable(
        self, request: httpx.Request, tried: Iterable[str], error: Exception
    ) -> httpx.TransportError:
        kind = httpx.ConnectTimeout if isinstance(error, httpx.ConnectTimeout) else httpx.ConnectError
        return kind(f"no connection to smg ({self._smg.url}): {error}", request=request)


class Transport(direct.Transport):
    """`coresched.httpx.Transport` through an smg: each request goes there with a minted routing key.

    `smg` chooses and counts, outside of turns; inside an open turn of a Batch whose workers are those of
    `smg` the request goes to the turn's worker, and the turn counts it. A request that another worker served,
    because smg passed over the chosen one, counts there, unless a turn counts it. `label_header`, `inner`,
    `record`: as there.

    Raises TypeError or ValueError for a bad argument. A request raises ValueError without a label, and
    `httpx.ConnectError` or `httpx.ConnectTimeout` without a connection to smg.
    """

    def __init__(
        self,
        smg: SmgRouter,
        *,
        label_header: str = ROUTING_HEADER,
        inner: Callable[[], httpx.AsyncBaseTransport] | None = None,
        record: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(
            _checked(smg).workers(), router=smg, label_header=label_header, inner=inner, record=record
        )
        self._book = _ThroughSmg(smg, label_header)


class SyncTransport(direct.SyncTransport):
    """What Transport is, for `httpx.Client` and any number of threads."""

    def __init__(
        self,
        smg: SmgRouter,
        *,
        label_header: str = ROUTING_HEADER,
        inner: Callable[[], httpx.BaseTransport] | None = None,
        record: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(
            _checked(smg).workers(), router=smg, label_header=label_header, inner=inner, record=record
        )
        self._book = _ThroughSmg(smg, label_header)
