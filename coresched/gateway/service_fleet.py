"""Which worker takes a request, where a service chooses: one count for any number of gateways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from time import perf_counter

from coresched.client.errors import ServiceError
from coresched.client.remote.options import Connection
from coresched.client.remote.router import (
    ServiceAwayError,
    ServiceRouter,
    ServiceWorker,
    UnknownExcludeError,
    routing,
)
from coresched.client.shared import Flight
from coresched.errors import InputError
from coresched.gateway.members import Members, NoWorkerError, Placed, RouterAwayError
from coresched.gateway.workers import Worker, worker_at

REFRESH_S = 5.0
"""Seconds between two looks at the service's workers; one that is routed to before is looked up at once."""

_TRIES = 3


class ServiceFleet(Members):
    """The workers of a service, which chooses among them for all its clients.

    Workers are healthy or out as this gateway sees them, and in flight is what it sent itself: the service's
    L(w) is over all gateways. A worker that leaves the service stays here until its requests have ended. One
    whose name is no base URL is never used. For one event loop.
    """

    knows_homes = False

    def __init__(
        self,
        router: ServiceRouter,
        *,
        failures_to_out: int = 3,
        notify: Callable[[Worker, str], None] = lambda worker, line: None,
        tell: Callable[[bool, str], None] = lambda well, line: None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """`tell` is called with whether all is well and a line about it: the service does not answer or does
        again, a worker joined or left, one has no URL."""
        super().__init__((), failures_to_out=failures_to_out, notify=notify, clock=clock)
        self._router = router
        self._tell = tell
        self._by_name: dict[str, Worker] = {}
        self._listed: frozenset[str] = frozenset()
        self._unusable: frozenset[str] = frozenset()
        self._change = asyncio.Event()
        self._answers = True

    async def place(self, label: str, failed: Sequence[Worker] = ()) -> Placed:
        """As Members.place; the choice is the service's."""
        began = self._clock()
        for _ in range(_TRIES):
            flight = await self._flight(label, failed)
            if flight is None:
                continue
            worker = self._by_name[flight.worker]
            self._began(label, worker, began, failed)
            return Placed(worker, partial(self._end, worker, flight))
        raise RouterAwayError("the workers of the service changed meanwhile")

    async def _flight(self, label: str, failed: Sequence[Worker]) -> Flight | None:
        """One choice, on a worker known here; None if the service's workers are others than they were."""
        exclude = self._listed.intersection(self._excluded(failed)) | self._unusable
        try:
            flight = await self._router.route(label, sorted(exclude))
        except UnknownExcludeError:
            await self._look()
            return None
        except LookupError:
            raise NoWorkerError from None
        except ServiceError as error:
            raise RouterAwayError(str(error)) from None
        if flight.worker in self._by_name:
            return flight
        try:
            await self._look()
        except BaseException:
            flight.end()
            raise
        if flight.worker in self._by_name:
            return flight
        flight.end()
        return None

    def _end(self, worker: Worker, flight: Flight) -> None:
        flight.end()
        self._ended(worker)
        if worker.name not in self._listed and worker.in_flight == 0:
            self._drop(worker)

    async def changed(self) -> None:
        """Returns once `workers` may be others than when it returned before."""
        await self._change.wait()
        self._change.clear()

    async def refresh(self) -> None:
        """Take over the service's workers. Raises ServiceError."""
        listed = await self._router.workers()
        usable: list[tuple[ServiceWorker, Worker]] = []
        unusable: set[str] = set()
        for one in listed:
            if one.standing == "removed":
                continue
            try:
                worker = self._by_name.get(one.name) or worker_at(one.name, one.weight)
            except InputError as error:
                reason = str(error).removeprefix("--worker ")
            else:
                if worker.name == one.name:
                    usable.append((one, worker))
                    continue
                reason = f"must be a base URL without a slash at its end, got {one.name!r}"
            unusable.add(one.name)
            if one.name not in self._unusable:
                self._tell(False, f"a worker of the service {reason}; nothing is sent there")
        self._listed = frozenset(one.name for one, _ in usable)
        self._unusable = frozenset(unusable)
        for one, worker in usable:
            worker.weight = one.weight
            if one.name not in self._by_name:
                worker.recheck.set()
                self._by_name[one.name] = worker
                self._tell(True, f"worker {one.name} joined the service")
        for worker in list(self._by_name.values()):
            if worker.name not in self._listed and worker.in_flight == 0:
                self._drop(worker)
        if self.workers != tuple(self._by_name.values()):
            self._set_workers()

    async def follow(self) -> None:
        """Look at the service's workers again and again, until cancelled."""
        while True:
            await asyncio.sleep(REFRESH_S)
            with suppress(RouterAwayError):
                await self._look()

    async def _look(self) -> None:
        """`refresh`, telling whether the service answers. Raises RouterAwayError."""
        try:
            await self.refresh()
        except ServiceError as error:
            if self._answers:
                self._answers = False
                self._tell(False, str(error))
            raise RouterAwayError(str(error)) from None
        if not self._answers:
            self._answers = True
            self._tell(True, "the service answers again")

    def _drop(self, worker: Worker) -> None:
        if self._by_name.pop(worker.name, None) is not None:
            self._tell(True, f"worker {worker.name} left the service")
            self._set_workers()

    def _set_workers(self) -> None:
        self.workers = tuple(self._by_name.values())
        self._weigh()
        self._change.set()


@asynccontextmanager
async def service_fleet(
    connection: Connection,
    *,
    wait_s: float,
    failures_to_out: int,
    notify: Callable[[Worker, str], None],
    tell: Callable[[bool, str], None],
) -> AsyncIterator[ServiceFleet]:
    """A fleet that follows the service's workers, which it knows already.

    `wait_s`: seconds that a request, and the start, wait for a service that does not answer.

    Raises ServiceError if the service refuses to tell its workers or does not answer.
    """
    async with routing(connection, wait_s=wait_s) as router:
        fleet = ServiceFleet(router, failures_to_out=failures_to_out, notify=notify, tell=tell)
        await _first_look(fleet, wait_s)
        following = asyncio.create_task(fleet.follow())
        try:
            yield fleet
        finally:
            following.cancel()


async def _first_look(fleet: ServiceFleet, wait_s: float) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    while True:
        try:
            return await fleet.refresh()
        except ServiceAwayError:
            if loop.time() >= until:
                raise
        await asyncio.sleep(0.1)
