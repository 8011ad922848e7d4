"""Where a request shall go: its label, the endpoints that may take it, LBCH's order, or a refusal."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from time import monotonic

from coresched.gateway.fleet import Fleet, NoWorkerError
from coresched.gateway.labels import LABEL_HEADERS, checked_label
from coresched.gateway.refusal import RefusedError, shown
from coresched.logs import event
from coresched_envoy.flights import Flight, Flights
from coresched_envoy.messages import go_to, has_length, header_values, served_by, subset_of
from coresched_envoy.names import SUBSET
from coresched_envoy.wire_pb2 import HttpHeaders, Metadata, ProcessingRequest

_logger = logging.getLogger("coresched.epp")

UNKNOWN_EVERY_S = 10.0
"""Unknown endpoints of hints are logged at most so often."""


class Picker:
    """Answers request and response headers, for one event loop.

    The label is the first of the headers x-smg-routing-key, x-session-id and `label_headers`. A request with
    none gets a label of its own, which no other has: there is no cache to come back to, and such requests
    spread over the ring within the bound.
    """

    def __init__(
        self,
        fleet: Fleet,
        flights: Flights,
        *,
        label_headers: Sequence[str] = (),
        max_in_flight: int | None = None,
        retry_after_s: int = 5,
    ) -> None:
        """`max_in_flight`: most requests in flight on a worker; None for no limit."""
        self.fleet = fleet
        self.flights = flights
        self._label_headers = tuple(dict.fromkeys((*map(str, LABEL_HEADERS), *label_headers)))
        self._wanted = frozenset((*self._label_headers, SUBSET))
        self._max_in_flight = max_in_flight
        self._retry_after_s = retry_after_s
        self._unknown_logged = float("-inf")
        self.refused: Counter[tuple[int, str]] = Counter()
        """Requests that got an answer of the picker's own, by status and code."""
        self.unlabelled = 0
        self.moved = 0
        """Requests that another endpoint than the first took."""
        self.unknown_endpoints = 0
        """Endpoints in hints that are no workers."""

    def pick(self, request: ProcessingRequest, connection: str) -> tuple[Flight, bytes]:
        """The flight of a request, which counts from now on, and the answer to its headers.

        `connection` names the connection that it came over. Raises RefusedError.
        """
        headers = header_values(request.request_headers, self._wanted)
        label = self._label(headers)
        subset = subset_of(request.metadata_context, headers)
        exclude = self._outside(subset) if subset is not None else ()
        if self._max_in_flight is not None:
            exclude = self._not_full(exclude, self._max_in_flight)
        own = label is None
        if label is None:
            self.unlabelled += 1
            label = f"unlabelled-{self.unlabelled}"
        try:
            order = self.fleet.place_in_order(label, exclude)
        except NoWorkerError:
            where = "" if subset is None else " of the subset in the request"
            raise self._unavailable(f"no worker{where} is ready; send the request again later") from None
        if own:
            self.fleet.forget(label)
        flight = self.flights.begin(order[0], connection, monotonic())
        return flight, go_to([worker.name for worker in order], flight.mark)

    def response(self, flight: Flight, headers: HttpHeaders, metadata: Metadata) -> None:
        """The headers of the response came: who sent it, by the metadata, and whether its end is near."""
        served = served_by(metadata)
        if served is not None and served != flight.worker.name and not flight.ended:
            worker = self.fleet.get(served)
            if worker is not None:
                self.moved += 1
                self.fleet.interrupted(flight.worker)  # it did not take the request: a check is due
                self.fleet.move(flight.worker, worker)
                flight.worker = worker
        self.flights.answered(flight, plain=has_length(headers))

    def _label(self, headers: dict[str, list[str]]) -> str | None:
        for name in self._label_headers:
            values = headers.get(name)
            if values is not None:
                where = f"header {name}"
                if len(values) > 1:
                    raise RefusedError(
                        400,
                        "invalid_label",
                        f"{where} must be given once, got {shown(values[0])} and another",
                        param=name,
                    )
                return checked_label(values[0], where, name)
        return None

    def _outside(self, subset: list[str]) -> frozenset[str]:
        """The workers that are not in the subset; endpoints there that are none are counted and logged."""
        among = frozenset(subset)
        names = frozenset(worker.name for worker in self.fleet.workers)
        unknown = among - names
        if unknown:
            self.unknown_endpoints += len(unknown)
            now = monotonic()
            if now - self._unknown_logged >= UNKNOWN_EVERY_S:
                self._unknown_logged = now
                some = ", ".join(shown(name) for name in sorted(unknown)[:3])
                line = f"a subset hint names endpoints that are no workers: {some}; they are left out"
                event(_logger, logging.WARNING, "unknown_endpoints", line, endpoints=len(unknown))
        return names - among

    def _not_full(self, exclude: Sequence[str] | frozenset[str], most: int) -> frozenset[str]:
        """Also without the workers that have as many in flight as they may. Raises RefusedError (429)."""
        left = [worker for worker in self.fleet.workers if worker.healthy and worker.name not in exclude]
        full = [worker.name for worker in left if worker.in_flight >= most]
        if left and len(full) == len(left):
            raise RefusedError(
                429,
                "too_many_in_flight",
                f"every worker has {most} requests in flight, the most allowed; send the request again later",
                retry_after_s=self._retry_after_s,
            )
        return frozenset((*exclude, *full))

    def _unavailable(self, message: str) -> RefusedError:
        return RefusedError(503, "no_healthy_worker", message, retry_after_s=self._retry_after_s)
