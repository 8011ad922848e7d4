"""Connections to the workers, kept open between requests."""

from __future__ import annotations

import asyncio
import ssl

from yarl import URL

from coresched.gateway.connection import WorkerConnection
from coresched.gateway.workers import Worker

# Below the 5 s after which uvicorn closes an idle connection: a request sent on one that is just being closed
# could not be told from one that killed the worker.
_IDLE_S = 3.0


class NoConnectionError(Exception):
    """There is no connection to a worker, so nothing was sent."""


class Connections:
    """Idle connections by worker, and new ones where there is none; for one event loop."""

    def __init__(self, *, connect_timeout_s: float) -> None:
        self._idle: dict[Worker, list[WorkerConnection]] = {}
        self._timeout_s = connect_timeout_s
        self._loop = asyncio.get_running_loop()
        self._sweep: asyncio.TimerHandle | None = None
        self._tls: ssl.SSLContext | None = None

    async def take(self, worker: Worker) -> WorkerConnection:
        """A connection for one request, the one used last if there is one. Raises NoConnectionError."""
        idle = self._idle.setdefault(worker, [])
        while idle:
            connection = idle.pop()
            if connection.is_reusable and self._loop.time() - connection.idle_since < _IDLE_S:
                return connection
            connection.abort()
        try:
            return await asyncio.wait_for(self._connected(worker), self._timeout_s)
        except asyncio.TimeoutError:
            raise NoConnectionError(f"no connection within {self._timeout_s:g} s") from None
        except OSError as error:
            raise NoConnectionError(str(error) or type(error).__name__) from None

    def give_back(self, worker: Worker, connection: WorkerConnection) -> None:
        """Keep it for another request, or close it if its answer was not read to the end."""
        if not connection.is_reusable:
            connection.abort()
            return
        connection.idle_since = self._loop.time()
        self._idle.setdefault(worker, []).append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(_IDLE_S, self._close_idle)

    def close(self) -> None:
        """Close all that are idle."""
        if self._sweep is not None:
            self._sweep.cancel()
        for idle in self._idle.values():
            while idle:
                idle.pop().abort()

    def _close_idle(self) -> None:
        """The oldest come first in each list."""
        self._sweep = None
        until = self._loop.time() - _IDLE_S
        for worker, idle in list(self._idle.items()):
            kept = [item for item in idle if item.idle_since > until and item.is_reusable]
            for connection in set(idle).difference(kept):
                connection.abort()
            if kept:
                self._idle[worker] = kept
            else:
                del self._idle[worker]
        if self._idle:
            self._sweep = self._loop.call_later(_IDLE_S / 3, self._close_idle)

    async def _connected(self, worker: Worker) -> WorkerConnection:
        url = URL(worker.name, encoded=True)
        assert url.host is not None
        assert url.port is not None
        tls = self._trusted() if url.scheme == "https" else None
        _, connection = await self._loop.create_connection(WorkerConnection, url.host, url.port, ssl=tls)
        return connection

    def _trusted(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls
