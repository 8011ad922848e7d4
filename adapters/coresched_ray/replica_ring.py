"""The router of the core over replicas: choices by slot, requests in flight by replica."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Generic, TypeVar

from coresched.core.routers import DEFAULT_VIRTUAL_NODES, make_router

Replica = TypeVar("Replica")


def slot_name(slot: int) -> str:
    """The worker's name on the ring."""
    return f"slot-{slot}"


class ReplicaRing(Generic[Replica]):
    """Replicas on the slots of a ring, which may change while requests are in flight.

    A slot's load L(w) is what is in flight on the replica that has it now: a replacement begins at zero, a
    replica that moves to another slot or comes back takes its requests along.
    """

    def __init__(
        self,
        router: str = "lbch",
        load_bound: float = 1.25,
        virtual_nodes: int = DEFAULT_VIRTUAL_NODES,
        slack: int = 0,
    ) -> None:
        self._router = make_router(router, (), load_bound, virtual_nodes, slack)
        self._slots: dict[Replica, int] = {}
        self._at: dict[str, Replica] = {}
        self._in_flight: dict[Replica, int] = {}
        self._unlabelled = 0

    @property
    def slots(self) -> Mapping[Replica, int]:
        """The routable replicas."""
        return self._slots

    def place(self, slots: Mapping[Replica, int]) -> None:
        """Make these replicas routable, in these slots, each of which one replica has; and no others."""
        for replica, slot in list(self._slots.items()):
            if slots.get(replica) != slot:
                self._leave(replica)
        for replica, slot in sorted(slots.items(), key=lambda pair: pair[1]):
            if replica not in self._slots:
                self._join(replica, slot)

    def route(self, label: str | None, exclude: Collection[Replica] = ()) -> Replica | None:
        """The replica for a request of the label, now counted there until `release`; None if there is none.

        Without a label it is the one with the fewest requests in flight, of several the next in turn.
        Raises TypeError or ValueError for what is no label.
        """
        if len(self._slots) == len(excluded := {replica for replica in exclude if replica in self._slots}):
            return None
        if label is None:
            chosen = self._least_loaded(excluded)
            self._router.hold(slot_name(self._slots[chosen]))
        else:
            names = tuple(slot_name(self._slots[replica]) for replica in excluded)
            chosen = self._at[self._router.route(label, names)]
        self._in_flight[chosen] = self._in_flight.get(chosen, 0) + 1
        return chosen

    def hold(self, replica: Replica) -> None:
        """Count one request in flight on a replica that somebody else chose, until `release`."""
        self._in_flight[replica] = self._in_flight.get(replica, 0) + 1
        if replica in self._slots:
            self._router.hold(slot_name(self._slots[replica]))

    def release(self, replica: Replica) -> None:
        """End one request in flight. Raises LookupError for a replica that has none."""
        if replica not in self._in_flight:
            raise LookupError(f"replica {replica} has no request in flight to release")
        self._in_flight[replica] -= 1
        if self._in_flight[replica] == 0:
            del self._in_flight[replica]
        if replica in self._slots:
            self._router.release(slot_name(self._slots[replica]))

    def settle(self, label: str, replica: Replica) -> None:
        """The label was served there, whatever had been chosen."""
        if replica in self._slots:
            self._router.settle(label, slot_name(self._slots[replica]))

    def home(self, label: str) -> Replica | None:
        """The label's home now, or None."""
        name = self._router.home(label) if self._slots else None
        return None if name is None else self._at.get(name)

    def in_flight(self) -> dict[Replica, int]:
        """Requests in flight by replica, of those that have any, routable or not."""
        return dict(self._in_flight)

    def _least_loaded(self, excluded: Collection[Replica]) -> Replica:
        self._unlabelled += 1
        others = [replica for replica in self._slots if replica not in excluded]
        turn = self._unlabelled % len(others)
        return min(others[turn:] + others[:turn], key=lambda replica: self._in_flight.get(replica, 0))

    def _join(self, replica: Replica, slot: int) -> None:
        name = slot_name(slot)
        self._slots[replica] = slot
        self._at[name] = replica
        self._router.add_worker(name)
        for _ in range(self._in_flight.get(replica, 0)):
            self._router.hold(name)

    def _leave(self, replica: Replica) -> None:
        name = slot_name(self._slots.pop(replica))
        del self._at[name]
        self._router.remove_worker(name)
        for _ in range(self._in_flight.get(replica, 0)):
            self._router.release(name)
