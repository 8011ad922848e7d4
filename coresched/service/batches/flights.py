"""The inference requests in flight of the turns of all batches: one for each turn that was routed."""

from __future__ import annotations

from collections.abc import Collection

from coresched.service.batches.effects import Effects
from coresched.service.batches.facts import BatchFact
from coresched.service.batches.samples import SampleRecord
from coresched.service.batches.sessions import Session
from coresched.service.table import Flight, Owner, RoutingTable


class Flights:
    """Routes turns over the table that all batches and the router share."""

    def __init__(self, table: RoutingTable) -> None:
        self._table = table
        self._owners: dict[str, Owner] = {}
        self._in_flight: dict[tuple[int, str], Flight] = {}

    def start(self, session: Session, sample: str, exclude: Collection[str], request_id: str) -> str:
        """Route a turn, now in flight; the worker's name, empty where no worker is registered.

        Refused as RoutingTable.route does.
        """
        if not self._table.workers() and not exclude:
            return ""
        flight = self._table.route(sample, exclude, owner=self._owner(session), request_id=request_id)
        self._in_flight[session.batch.key, sample] = flight
        return flight.worker

    def restore(self, session: Session, record: SampleRecord) -> None:
        """Count a turn that was in flight before a restart, if its worker is still known."""
        flight = self._table.restore(record.name, record.worker, owner=self._owner(session), request_id="")
        if flight is not None:
            self._in_flight[session.batch.key, record.name] = flight

    def on_fact(self, fact: BatchFact, effects: Effects) -> None:
        """End what is in flight of the turns that ended."""
        for record in effects.turns_ended:
            flight = self._in_flight.pop((effects.batch.key, record.name), None)
            if flight is not None:
                self._table.end(flight)
        for session in effects.sessions_ended:
            self._owners.pop(session.name, None)

    def _owner(self, session: Session) -> Owner:
        owner = self._owners.get(session.name)
        if owner is None:
            owner = self._owners[session.name] = Owner()
        return owner
