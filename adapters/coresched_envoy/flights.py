"""Requests in flight: from the picker's answer to their line in Envoy's access log, or to a rule's end.

Envoy ends the stream of external processing with the response's headers, long before a streamed answer ends.
The line comes when the request has ended, however it did. Each flight ends once, by the first of these:

- its line comes;
- its stream saw the end of the response (only where Envoy sends bodies);
- its stream ended before the response's headers, or in the middle of bodies, and `wait_s` later there is no
  line yet (the client or Envoy is gone, or Envoy gave up on the picker);
- the access log's stream on which lines of its connection came has closed, none such is open, and `wait_s`
  later no line has come over the connection (Envoy is gone, or has lost its lines);
- `longest_s` after the end of its stream there is no line yet (a line was lost).

A connection of Envoy's from which no line has come, though one was due, is taken for one without an access
log: from then on its flights end with their streams, too early for streamed answers. A line ends that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count, takewhile
from secrets import token_hex

from coresched.gateway.workers import Worker

UNHEARD_S = 60.0
"""How long the first line of a connection may take after the headers of a streamed answer."""

_MOST_REMEMBERED = 65536
"""Marks of flights that a rule has ended, so that a late line is known as one."""

_MOST_SILENT = 1024
"""Connections without an access log that are remembered; they may be gone."""


class Connection:
    """One connection of Envoy's over which requests come; `heard`: lines for its requests do come, too.

    `silent`: one was due and none came.
    """

    __slots__ = ("flights", "heard", "last_begun", "logs", "name", "silent")

    def __init__(self, name: str) -> None:
        self.name = name
        self.heard = False
        self.silent = False
        self.logs: set[object] = set()
        self.flights: set[Flight] = set()
        self.last_begun = 0.0


class Flight:
    """One request. `worker` is where it counts."""

    __slots__ = ("answered", "connection", "due", "ended", "in_body", "mark", "over_at", "plain", "worker")

    def __init__(self, mark: str, worker: Worker, connection: Connection) -> None:
        self.mark = mark
        self.worker = worker
        self.connection = connection
        self.answered = False
        """The response's headers have come."""
        self.plain = False
        """The response has a length, so that its end is near."""
        self.in_body = False
        """Bodies come over the stream, which then lasts as long as the request."""
        self.ended = False
        self.over_at: float | None = None
        """When its stream ended."""
        self.due: float | None = None
        """When it ends without a line."""


class Flights:
    """What is in flight, by its mark. No I/O, no clock: `now` is monotonic, in seconds. For one thread."""

    def __init__(
        self,
        *,
        release: Callable[[Worker], None],
        wait_s: float = 5.0,
        longest_s: float = 3600.0,
        silent: Callable[[str], None] = lambda connection: None,
        heard: Callable[[str], None] = lambda connection: None,
    ) -> None:
        """`release` ends a request in flight on a worker. `silent` is called with the name of a connection
        that is taken for one without an access log, `heard` when a line showed that it has one.
        """
        self._release = release
        self._wait_s = wait_s
        self._longest_s = longest_s
        self._on_silent = silent
        self._on_heard = heard
        self._life = token_hex(6)  # so that marks of an earlier process are none of ours
        self._numbers = count(1)
        self._flights: dict[str, Flight] = {}
        self._connections: dict[str, Connection] = {}
        self._of_log: dict[object, set[Connection]] = {}
        self._due: list[tuple[float, int, Flight]] = []
        self._over: dict[Flight, float] = {}  # when their streams ended, ascending
        self._remembered: OrderedDict[str, Connection] = OrderedDict()
        self.lines = 0
        """Lines that ended a flight."""
        self.late_lines = 0
        """Lines of flights that a rule had ended."""
        self.other_lines = 0
        """Lines of no flight: an earlier process's, a second one, one of a request never placed."""
        self.without_line = 0
        """Flights that ended because their line did not come in time."""
        self.by_stream = 0
        """Flights that ended with their stream, on connections without an access log."""

    def __len__(self) -> int:
        return len(self._flights)

    @property
    def silent_connections(self) -> int:
        """Connections, of those remembered, that are taken for ones without an access log."""
        return sum(connection.silent for connection in self._connections.values())

    def begin(self, worker: Worker, connection: str, now: float) -> Flight:
        """A request that counts on the worker was sent back to Envoy over the connection of this name."""
        its = self._connections.get(connection)
        if its is None:
            its = self._connections[connection] = Connection(connection)
        its.last_begun = now
        flight = Flight(f"{self._life}-{next(self._numbers)}", worker, its)
        self._flights[flight.mark] = flight
        its.flights.add(flight)
        return flight

    def answered(self, flight: Flight, *, plain: bool) -> None:
        """The response's headers have come; `plain` if the body has a length, or there is none."""
        flight.answered = True
        flight.plain = plain

    def finished(self, flight: Flight) -> None:
        """The stream has shown the end of the response."""
        if not flight.ended:
            self._end(flight)

    def over(self, flight: Flight, now: float) -> None:
        """The request's stream has ended."""
        if flight.ended:
            return
        flight.over_at = self._over[flight] = now
        connection = flight.connection
        if connection.silent:
            self.by_stream += 1
            self._end(flight, remember=True)
        elif not flight.answered or flight.in_body:
            self._end_at(flight, now + self._wait_s)
        elif not connection.heard:
            self._end_at(flight, now + (self._wait_s if flight.plain else max(UNHEARD_S, self._wait_s)))

    def line(self, mark: str, log: object) -> None:
        """A line with this mark came over the stream `log`: the request has ended."""
        flight = self._flights.get(mark)
        if flight is not None:
            self.lines += 1
            connection = flight.connection
            self._hear(connection, log)
            self._end(flight)
            return
        earlier = self._remembered.pop(mark, None)
        if earlier is None:
            self.other_lines += 1
            return
        self.late_lines += 1
        self._hear(self._connections.setdefault(earlier.name, earlier), log)

    def log_closed(self, log: object, now: float) -> None:
        """A stream of the access log has ended."""
        for connection in self._of_log.pop(log, ()):
            connection.logs.discard(log)
            if not connection.logs:
                connection.heard = False
                for flight in connection.flights:
                    if flight.over_at is not None:
                        self._end_at(flight, now + self._wait_s)
                self._drop_if_idle(connection)

    def sweep(self, now: float) -> None:
        """End what is due by now."""
        while self._due and self._due[0][0] <= now:
            due, _, flight = heappop(self._due)
            if not flight.ended and flight.due == due:
                self._missed(flight)
        for flight in list(takewhile(lambda one: self._over[one] + self._longest_s <= now, self._over)):
            if not flight.ended:  # by another's rule
                self._missed(flight)

    def _missed(self, flight: Flight) -> None:
        """There should have been a line."""
        connection = flight.connection
        self.without_line += 1
        self._end(flight, remember=True)
        # Where nothing has come since, Envoy or the connection may be gone.
        if connection.heard or connection.silent or connection.last_begun <= (flight.over_at or 0.0):
            return
        connection.silent = True
        self._connections[connection.name] = connection
        self._forget_silent()
        for other in [one for one in connection.flights if one.over_at is not None]:
            self.by_stream += 1
            self._end(other, remember=True)
        self._on_silent(connection.name)

    def _forget_silent(self) -> None:
        silent = [one for one in self._connections.values() if one.silent and not one.flights]
        for connection in silent[: max(0, len(silent) - _MOST_SILENT)]:
            del self._connections[connection.name]

    def _hear(self, connection: Connection, log: object) -> None:
        connection.logs.add(log)
        self._of_log.setdefault(log, set()).add(connection)
        if connection.heard:
            return
        connection.heard = True
        for flight in connection.flights:
            if flight.over_at is not None and flight.answered and not flight.in_body:
                flight.due = None
        if connection.silent:
            connection.silent = False
            self._on_heard(connection.name)

    def _end_at(self, flight: Flight, due: float) -> None:
        flight.due = due
        heappush(self._due, (due, next(self._numbers), flight))

    def _end(self, flight: Flight, *, remember: bool = False) -> None:
        flight.ended = True
        connection = flight.connection
        connection.flights.discard(flight)
        del self._flights[flight.mark]
        self._over.pop(flight, None)
        if remember:
            self._remembered[flight.mark] = connection
            if len(self._remembered) > _MOST_REMEMBERED:
                self._remembered.popitem(last=False)
        self._drop_if_idle(connection)
        self._release(flight.worker)

    def _drop_if_idle(self, connection: Connection) -> None:
        if not (connection.flights or connection.logs or connection.silent):
            self._connections.pop(connection.name, None)
