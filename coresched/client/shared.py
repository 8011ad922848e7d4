"""One router for many clients in one process: it is behind a lock, and requests in flight end once."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from queue import SimpleQueue
from typing import Protocol

from coresched.core.routers import DEFAULT_VIRTUAL_NODES, RouterName, make_router


class Flight:
    """One request, counted in flight on `worker` until `end`; until it is garbage if nobody calls that."""

    __slots__ = ("__weakref__", "_end", "_hold", "worker")

    def __init__(
        self,
        worker: str,
        release: Callable[[str], object],
        hold: Callable[[str], object] | None = None,
    ) -> None:
        """`release` is called with the worker once, in any thread, even within garbage collection: it must
        neither block nor take a lock. `hold` counts a request on a worker that was not chosen; without it
        `moved` changes no count."""
        self.worker = worker
        self._hold = hold
        self._count_on(worker, release)

    def _count_on(self, worker: str, release: Callable[[str], object]) -> None:
        self._end = weakref.finalize(self, release, worker)  # calls once, whoever comes first
        self._end.atexit = False

    def moved(self, worker: str) -> None:
        """The request went to another worker than the chosen one: from now on it counts there.

        Nothing happens after the end. Raises LookupError for a worker that the router does not know, and
        changes nothing then. For whoever holds the flight, in one thread.
        """
        counted = self._end.detach()
        if counted is None:
            return
        release, before = counted[1], self.worker
        try:
            if self._hold is not None:
                self._hold(worker)
                release(before)
                before = worker
            self.worker = worker
        finally:
            self._count_on(before, release)

    def end(self) -> None:
        """End the request, however it went; nothing happens the second time."""
        self._end()


class Router(Protocol):
    """What a transport needs to know of a router. Safe for several threads."""

    def route(self, label: str, exclude: Collection[str] = ()) -> Flight:
        """Choose a worker outside `exclude` and count the request there. LookupError: none is left."""


class AsyncRouter(Protocol):
    """A router that has to be waited for."""

    async def route(self, label: str, exclude: Collection[str] = ()) -> Flight:
        """As Router.route. If it is cancelled, nothing stays counted."""


class SharedRouter:
    """A router for any number of threads, event loops and transports, which then share its counts.

    `router` is "lbch", a LoadBoundedRouter, or "sticky-bounded", a StickyBoundedRouter. Takes what these take
    and raises what they raise, and ValueError for virtual nodes of a router without a ring.
    """

    def __init__(
        self,
        workers: Iterable[str] | Mapping[str, float],
        *,
        load_bound: float = 1.25,
        virtual_nodes: int = DEFAULT_VIRTUAL_NODES,
        router: RouterName = "lbch",
        slack: int = 0,
    ) -> None:
        self._router = make_router(router, workers, load_bound, virtual_nodes, slack)
        self._lock = threading.Lock()
        # A flight may end in a garbage collection that strikes this very thread inside the lock. So an end
        # only goes on the queue, which allows that, and whoever looks at the counts next takes it off.
        self._ended: SimpleQueue[str] = SimpleQueue()

    def route(self, label: str, exclude: Collection[str] = ()) -> Flight:
        """The request's flight, counted on its worker; raises as LoadBoundedRouter.route."""
        with self._lock:
            self._settle()
            return Flight(self._router.route(label, exclude), self._ended.put, self._hold)

    def add_worker(self, name: str, weight: float = 1.0) -> None:
        """Add a worker, as LoadBoundedRouter.add_worker does."""
        with self._lock:
            self._router.add_worker(name, weight)

    def remove_worker(self, name: str) -> None:
        """Take a worker out; its requests in flight may still end. Raises LookupError for an unknown one."""
        with self._lock:
            self._settle()
            self._router.remove_worker(name)

    def home(self, label: str) -> str | None:
        """The label's home worker, whatever its load; nothing is counted. None: it has none yet."""
        with self._lock:
            return self._router.home(label)

    def loads(self) -> dict[str, int]:
        """Requests in flight by worker, in order of addition."""
        with self._lock:
            self._settle()
            return self._router.loads()

    def workers(self) -> list[str]:
        """Names of the workers, in order of addition."""
        with self._lock:
            return self._router.workers()

    def _hold(self, worker: str) -> None:
        with self._lock:
            self._router.hold(worker)

    def _settle(self) -> None:
        while not self._ended.empty():
            self._router.release(self._ended.get_nowait())
