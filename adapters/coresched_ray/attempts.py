"""Which requests are counted in flight, on which replica: from the choice of a replica to the end.

Serve's router makes an attempt to place a request, and another one if the replica refuses or has died. Each
attempt is counted once at most, on one replica, from its choice on: a burst that is chosen for at once sees
itself.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from coresched_ray.replica_ring import ReplicaRing

_MARK = "_coresched_attempt"


@dataclass(eq=False)
class Attempt:
    """`replica`: where it is counted, None: nowhere."""

    label: str | None
    internal_id: str
    replica: Any = None
    is_waiting: bool = True
    is_sent: bool = False


class Attempts:
    """All attempts of one router; its methods are called on the router's event loop."""

    def __init__(self, ring: ReplicaRing[Any]) -> None:
        self._ring = ring
        self._waiting: dict[int, tuple[Any, Attempt]] = {}  # by identity of the request's metadata
        self._assigned: dict[tuple[Any, str], list[Attempt]] = {}
        self._latest: tuple[object, Attempt] | None = None

    def begin(self, request: Any, label: str | None) -> Attempt:
        """An attempt to place the request waits for a replica; an earlier one is counted no more."""
        earlier = getattr(request, _MARK, None)
        if earlier is not None:
            if earlier.is_sent:
                self.uncharge(earlier)  # its end is still to be told
            else:
                self._end(earlier)
        attempt = Attempt(label, request.metadata.internal_request_id)
        setattr(request, _MARK, attempt)
        self._waiting[id(request.metadata)] = request, attempt
        return attempt

    def waiting(self, request: Any) -> Attempt | None:
        """The attempt of a request that waits for a replica."""
        found = self._waiting.get(id(request.metadata))
        return None if found is None else found[1]

    def request_of(self, metadata: Any) -> Any:
        """The request with this metadata that waits for a replica and has none yet, or None."""
        found = self._waiting.get(id(metadata))
        return None if found is None or found[0].future.done() else found[0]

    def charge(self, attempt: Attempt, tried: Collection[Any] = ()) -> bool:
        """Choose a replica other than those tried, and count the attempt there; False if there is none."""
        self.uncharge(attempt)
        attempt.replica = self._ring.route(attempt.label, tried)
        return attempt.replica is not None

    def uncharge(self, attempt: Attempt) -> None:
        """Count it nowhere."""
        replica, attempt.replica = attempt.replica, None
        if replica is not None:
            self._ring.release(replica)

    def drop(self, attempt: Attempt, request: Any) -> None:
        """The attempt ended without a replica: cancelled, most likely."""
        self._stop_waiting(attempt, request)
        self.uncharge(attempt)

    def assign(self, attempt: Attempt, request: Any, replica: Any, task: object) -> None:
        """Serve took this replica for it, the charged one or another; `task` is the one that runs."""
        self._stop_waiting(attempt, request)
        if attempt.replica != replica:
            self.uncharge(attempt)
            self._ring.hold(replica)
            attempt.replica = replica
            if attempt.label is not None:
                self._ring.settle(attempt.label, replica)
        self._assigned.setdefault((replica, attempt.internal_id), []).append(attempt)
        self._latest = task, attempt

    def sent(self, replica: Any, task: object) -> None:
        """What was assigned last, if on this task, has been sent; it ends by `completed` alone."""
        latest, self._latest = self._latest, None
        if latest is not None and latest[0] is task and latest[1].replica == replica:
            latest[1].is_sent = True

    def completed(self, replica: Any, internal_id: str) -> None:
        """A request on the replica ended, of those with this id; one that is not counted is passed over."""
        attempts = self._assigned.get((replica, internal_id))
        if attempts:
            self._end(next((each for each in attempts if each.is_sent), attempts[0]), replica)

    def end_unsent(self, attempt: Attempt) -> None:
        """The request is gone; if it was never sent, but only reserved a place, nothing else ends it."""
        if not attempt.is_sent:
            self._end(attempt)

    def _end(self, attempt: Attempt, replica: Any = None) -> None:
        key = (attempt.replica if replica is None else replica), attempt.internal_id
        attempts = self._assigned.get(key, [])
        if attempt in attempts:
            attempts.remove(attempt)
            if not attempts:
                del self._assigned[key]
        self.uncharge(attempt)

    def _stop_waiting(self, attempt: Attempt, request: Any) -> None:
        attempt.is_waiting = False
        del self._waiting[id(request.metadata)]
