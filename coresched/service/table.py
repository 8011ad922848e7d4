"""The router and the requests in flight on it: what was routed, for whom, and not yet released."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import NoReturn

from grpc import StatusCode

from coresched.core.imbalance import RequestImbalance
from coresched.core.routers import DEFAULT_VIRTUAL_NODES, RouterName, make_router
from coresched.core.shares import check_share
from coresched.metrics.histogram import DECISION_S, Histogram
from coresched.service.entry import Imbalance, Standing, WorkerEntry
from coresched.service.refusal import RefusedError, checked_label, refuse_argument, shown

MOST_WORKERS = 10_000
"""Most workers of a table, those that are draining or removed included."""


class Owner:
    """Whom requests in flight belong to: one stream, or the unary calls of one tenant.

    Known by identity alone. ``routed`` ends the sentence that the release of another owner's request gets.
    """

    __slots__ = ("__weakref__", "routed")

    def __init__(self, routed: str = "on this stream") -> None:
        self.routed = routed

    @classmethod
    def of_unary_calls(cls) -> Owner:
        return cls("by a unary call")


UNARY = Owner.of_unary_calls()
"""The owner of what was routed outside of any stream, where there are no tenants."""


@dataclass(slots=True, eq=False)
class Flight:
    """One request; `in_flight` until it is released."""

    label: str
    worker: str
    owner: Owner
    request_id: str
    in_flight: bool = True


_NONE: dict[tuple[str, str], list[Flight]] = {}


class RoutingTable:
    """A router, and an account of each request in flight: a release or a lost client ends only its own.

    Every step is checked before anything changes. For one thread.
    """

    def __init__(
        self,
        workers: Mapping[str, float],
        *,
        router: RouterName = "lbch",
        load_bound: float = 1.25,
        virtual_nodes: int = DEFAULT_VIRTUAL_NODES,
        slack: int = 0,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """Takes what make_router takes and raises what it raises, and ValueError over a limit above.

        `clock` is monotonic, in seconds, and measures only: nothing is decided by it.
        """
        if len(workers) > MOST_WORKERS:
            raise ValueError(f"workers must be at most {MOST_WORKERS}, got {len(workers)}")
        for weight in workers.values():
            check_share(weight, virtual_nodes)
        self.router = router
        """Its name."""
        self.virtual_nodes = virtual_nodes
        self._router = make_router(router, workers, load_bound, virtual_nodes, slack)
        self._workers = {name: WorkerEntry(weight) for name, weight in workers.items()}
        self._flights: dict[Owner, dict[tuple[str, str], list[Flight]]] = {}
        self._clock = clock
        self._imbalance = RequestImbalance([0] * len(workers), clock())
        self.decision_s = Histogram(DECISION_S)
        """What each route took, its checks included."""

    @property
    def load_bound(self) -> float:
        return self._router.load_bound

    @property
    def slack(self) -> int:
        return self._router.slack

    def workers(self) -> Mapping[str, WorkerEntry]:
        """Workers routable, draining, or removed with requests in flight, in order of registration."""
        return self._workers

    def imbalance(self) -> Imbalance:
        """How unevenly the requests in flight lie, and lay, on the routable workers."""
        over_s, busy_s = self._imbalance.integrals(self._clock())
        return Imbalance(self._imbalance.present, over_s, busy_s)

    def register(self, worker: str, weight: float | None) -> None:
        """Make a worker routable, draining or removed ones again.

        Its places on LBCH's ring follow from its name, so the labels it had as home come back. Without a
        weight, a draining worker has the one it had, any other 1. Refused: ALREADY_EXISTS, INVALID_ARGUMENT
        for worker and weight, RESOURCE_EXHAUSTED beyond MOST_WORKERS.
        """
        checked_label("worker", worker)
        entry = self._workers.get(worker)
        if entry is not None and entry.routable:
            raise RefusedError(
                StatusCode.ALREADY_EXISTS,
                "worker",
                f"worker {shown(worker)} is routable already; remove it first to change its weight",
            )
        if entry is None and len(self._workers) >= MOST_WORKERS:
            raise RefusedError(
                StatusCode.RESOURCE_EXHAUSTED,
                "worker",
                f"worker {shown(worker)} would be one more than {MOST_WORKERS} workers; remove another first",
            )
        if weight is None:
            weight = entry.weight if entry is not None and entry.standing is Standing.DRAINING else 1.0
        try:
            check_share(weight, self.virtual_nodes)
            self._router.add_worker(worker, weight)
        except ValueError as error:
            refuse_argument("weight", error)
        if entry is None:
            self._workers[worker] = WorkerEntry(weight)
        else:
            entry.weight = weight
            entry.standing = Standing.ROUTABLE
        self._weigh()

    def drain(self, worker: str) -> int:
        """Route nothing more to a worker; its requests still in flight.

        It is off the ring and out of W and L_tot, yet listed and known until removed or registered again.
        Refused: NOT_FOUND, INVALID_ARGUMENT.
        """
        entry = self._present(worker)
        self._take_off_the_ring(worker, entry, Standing.DRAINING)
        return entry.in_flight

    def remove(self, worker: str) -> int:
        """Route nothing more to a worker, and forget it with its last request in flight; how many there are.

        Refused: NOT_FOUND, INVALID_ARGUMENT.
        """
        entry = self._present(worker)
        self._take_off_the_ring(worker, entry, Standing.REMOVED)
        if entry.in_flight == 0:
            del self._workers[worker]
        return entry.in_flight

    def _present(self, worker: str) -> WorkerEntry:
        """The entry of a worker that is not removed."""
        checked_label("worker", worker)
        entry = self._workers.get(worker)
        if entry is None or entry.standing is Standing.REMOVED:
            raise RefusedError(
                StatusCode.NOT_FOUND,
                "worker",
                f"worker must be routable or draining, got {shown(worker)}, which is neither",
            )
        return entry

    def _take_off_the_ring(self, worker: str, entry: WorkerEntry, standing: Standing) -> None:
        was_routable = entry.routable
        if was_routable:
            self._router.remove_worker(worker)
        entry.standing = standing
        if was_routable:
            self._weigh()

    def _weigh(self) -> None:
        """Other workers are routable now than before."""
        loads = [entry.in_flight for entry in self._workers.values() if entry.routable]
        self._imbalance.replace(loads, self._clock())

    def route(self, label: str, exclude: Collection[str], *, owner: Owner, request_id: str) -> Flight:
        """Place one request, by the rule of the router.

        Refused: INVALID_ARGUMENT for label, NOT_FOUND for an unknown worker in exclude, FAILED_PRECONDITION
        without workers or if exclude leaves none.
        """
        began = self._clock()
        if exclude:
            checked_label("label", label)
            self._check_exclude(exclude)
            # The ring does not know a draining worker without requests, and needs no word of the others.
            exclude = [name for name in exclude if self._workers[name].routable]
        try:
            home = self._router.home(label)  # before it moves
            worker = self._router.route(label, exclude or ())
        except ValueError as error:
            refuse_argument("label", error)
        except LookupError:
            self._refuse_without_workers()
        entry = self._workers[worker]
        flight = Flight(label, worker, owner, request_id)
        self._hold(flight)
        now = self._clock()
        self.decision_s.observe(now - began)
        self._imbalance.began(entry.in_flight, now)
        entry.in_flight += 1
        entry.routed += 1
        if home is not None and home != worker:
            self._workers[home].spilled += 1
        return flight

    def restore(self, label: str, worker: str, *, owner: Owner, request_id: str) -> Flight | None:
        """Count a request that was in flight before a restart, where it was; None on a worker not known."""
        entry = self._workers.get(worker)
        if entry is None:
            return None
        if entry.routable or entry.in_flight:
            self._router.hold(worker)
        else:
            # Off the ring and without requests, a worker is not known to it.
            self._router.add_worker(worker, entry.weight)
            self._router.hold(worker)
            self._router.remove_worker(worker)
        if entry.routable:
            self._router.settle(label, worker)
            self._imbalance.began(entry.in_flight, self._clock())
        entry.in_flight += 1
        flight = Flight(label, worker, owner, request_id)
        self._hold(flight)
        return flight

    def hold(self, label: str, worker: str, *, owner: Owner, request_id: str) -> Flight:
        """`restore`, for a client that tells of the request itself.

        Refused: INVALID_ARGUMENT for label and worker, NOT_FOUND for an unknown worker.
        """
        checked_label("label", label)
        checked_label("worker", worker)
        flight = self.restore(label, worker, owner=owner, request_id=request_id)
        if flight is None:
            _refuse_unknown(worker)
        return flight

    def end(self, flight: Flight) -> None:
        """End one request in flight; nothing happens if it has ended."""
        if flight.in_flight:
            self._end(flight)

    def release(self, label: str, worker: str, *, owner: Owner) -> None:
        """End one request in flight of this owner.

        Refused: INVALID_ARGUMENT for label and worker, NOT_FOUND for an unknown worker or a label without
        request in flight there, FAILED_PRECONDITION for a worker without any.
        """
        found = self._flights.get(owner, _NONE).get((label, worker))
        if not found:
            self._refuse_release(label, worker, owner)
        self._end(found[-1])

    def _refuse_release(self, label: str, worker: str, owner: Owner) -> NoReturn:
        checked_label("label", label)
        checked_label("worker", worker)
        entry = self._workers.get(worker)
        if entry is None:
            _refuse_unknown(worker)
        if entry.in_flight == 0:
            raise RefusedError(
                StatusCode.FAILED_PRECONDITION,
                "worker",
                f"worker {shown(worker)} has no request in flight to release",
            )
        raise RefusedError(
            StatusCode.NOT_FOUND,
            "label",
            f"label {shown(label)} has no request in flight on worker {shown(worker)} "
            f"that was routed {owner.routed}",
        )

    def hand_over(self, flight: Flight, owner: Owner) -> None:
        """Make a request in flight belong to another owner; nothing happens if it has ended."""
        if flight.in_flight and flight.owner is not owner:
            self._let_go(flight)
            flight.owner = owner
            self._hold(flight)

    def release_all(self, owner: Owner) -> list[Flight]:
        """End every request in flight of this owner, and return them."""
        ended = [flight for flights in self._flights.get(owner, {}).values() for flight in flights]
        for flight in ended:
            self._end(flight)
        return ended

    def _check_exclude(self, exclude: Collection[str]) -> None:
        for name in exclude:
            if name not in self._workers:
                raise RefusedError(
                    StatusCode.NOT_FOUND,
                    "exclude",
                    f"exclude must name known workers, got {shown(name)}, which is not one",
                )
        routable = {name for name, entry in self._workers.items() if entry.routable}
        if not routable:
            self._refuse_without_workers()
        if routable <= set(exclude):
            raise RefusedError(
                StatusCode.FAILED_PRECONDITION,
                "exclude",
                f"exclude must leave one routable worker, got all {len(routable)}",
            )

    def _refuse_without_workers(self) -> NoReturn:
        raise RefusedError(
            StatusCode.FAILED_PRECONDITION,
            "",
            "a worker must be registered before a label can be routed, none is routable",
        )

    def _hold(self, flight: Flight) -> None:
        flights = self._flights.get(flight.owner)
        if flights is None:
            flights = self._flights[flight.owner] = {}
        place = (flight.label, flight.worker)
        same = flights.get(place)
        if same is None:
            flights[place] = [flight]
        else:
            same.append(flight)

    def _let_go(self, flight: Flight) -> None:
        flights = self._flights[flight.owner]
        place = (flight.label, flight.worker)
        same = flights[place]
        same.remove(flight)
        if not same:
            del flights[place]
        if not flights:
            del self._flights[flight.owner]

    def _end(self, flight: Flight) -> None:
        self._let_go(flight)
        flight.in_flight = False
        self._router.release(flight.worker)
        entry = self._workers[flight.worker]
        if entry.routable:
            self._imbalance.ended(entry.in_flight, self._clock())
        entry.in_flight -= 1
        if entry.in_flight == 0 and entry.standing is Standing.REMOVED:
            del self._workers[flight.worker]


def _refuse_unknown(worker: str) -> NoReturn:
    raise RefusedError(
        StatusCode.NOT_FOUND, "worker", f"worker must be known, got {shown(worker)}, which is not"
    )
