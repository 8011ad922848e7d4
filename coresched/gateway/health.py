"""Active health checks: GET /health on each worker, at an interval and at once after a failed request."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import aiohttp

from coresched.gateway.members import Members
from coresched.gateway.workers import Worker


def health_session() -> aiohttp.ClientSession:
    """It goes nowhere else: no proxies, no cookies. Each check connects anew, as a request may have to."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
    )


class HealthChecks:
    """Tells the fleet who is healthy, until it is cancelled."""

    def __init__(
        self, fleet: Members, session: aiohttp.ClientSession, *, interval_s: float, timeout_s: float
    ) -> None:
        self._fleet = fleet
        self._session = session
        self._interval_s = interval_s
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)

    async def first_round(self) -> None:
        """Check all once, as `first`."""
        await asyncio.gather(*map(self.first, self._fleet.workers))

    async def first(self, worker: Worker) -> None:
        """Check a worker once. If it fails it is out at once, because nothing spoke for it yet."""
        reason = await self._failure(worker)
        if reason is not None:
            self._fleet.check_failed(worker, reason, at_once=True)

    async def run(self) -> None:
        """Check each worker at its own pace, for as long as it is one."""
        watches: dict[Worker, asyncio.Task[None]] = {}
        try:
            while True:
                present = self._fleet.workers
                for worker in [worker for worker in watches if worker not in present]:
                    watches.pop(worker).cancel()
                for worker in present:
                    if worker not in watches:
                        watches[worker] = asyncio.create_task(self.watch(worker))
                await self._fleet.changed()
        finally:
            for watch in watches.values():
                watch.cancel()

    async def watch(self, worker: Worker) -> None:
        """Check one worker at its own pace."""
        while True:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(worker.recheck.wait(), self._interval_s)
            worker.recheck.clear()
            reason = await self._failure(worker)
            if reason is None:
                self._fleet.check_passed(worker)
            else:
                self._fleet.check_failed(worker, reason)

    async def _failure(self, worker: Worker) -> str | None:
        """What is wrong with the worker; None if nothing is."""
        try:
            async with self._session.get(
                worker.url("/health"), timeout=self._timeout, allow_redirects=False
            ) as response:
                if response.status // 100 == 2:
                    return None
                return f"GET /health answered {response.status}"
        except asyncio.TimeoutError:
            return f"GET /health took longer than {self._timeout.total:g} s"
        except (aiohttp.ClientError, OSError) as error:
            return f"GET /health failed: {_said(error)}"


def _said(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):  # its own words speak of TLS also where there is none
        return f"{error.host}:{error.port} {error.os_error.strerror or error.os_error}"
    if isinstance(error, aiohttp.ClientResponseError):
        return "the answer is not HTTP/1.1"
    return str(error) or type(error).__name__
