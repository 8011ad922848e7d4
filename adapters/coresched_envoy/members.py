"""Which workers take part: those of the command line, and those of a file, read again when it changes."""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Mapping
from pathlib import Path

from coresched.core.checks import check_positive
from coresched.errors import InputError
from coresched.gateway.fleet import Fleet
from coresched.gateway.health import HealthChecks
from coresched.logs import event
from coresched_envoy.endpoints import Endpoint, checked_endpoints

_logger = logging.getLogger("coresched.epp")

LOOK_EVERY_S = 0.5
_LARGEST_FILE_BYTES = 1 << 20


class WorkersFile:
    """A line a worker, IP:PORT or IP:PORT=WEIGHT; empty lines and what follows a # are skipped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: object = None
        self._last: object = None

    def read(self) -> dict[str, float]:
        """Weights by endpoint. Raises InputError, naming the line."""
        where = f"--workers-file {self._path}"
        try:
            self._seen = self._last = self._state()
            if not stat.S_ISREG(self._path.stat().st_mode):  # a pipe would keep us waiting
                raise InputError(f"{where} must be a regular file, which can be read again")
            with self._path.open("rb") as file:
                data = file.read(_LARGEST_FILE_BYTES + 1)
            if len(data) > _LARGEST_FILE_BYTES:
                raise InputError(f"{where} must have at most 1 MiB, such as a line IP:PORT for each worker")
            text = data.decode("utf-8-sig")
        except OSError as error:
            raise InputError(f"{where} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise InputError(f"{where} must be UTF-8 text") from None
        given = []
        for number, line in enumerate(text.splitlines(), 1):
            if entry := line.partition("#")[0].strip():
                name, equals, weight = entry.partition("=")
                line_is = f"{where}, line {number}:"
                try:
                    given.append((name.strip(), check_positive(float(weight), "weight") if equals else 1.0))
                except ValueError:
                    raise InputError(
                        f"{line_is} the weight must be a number above 0, got {weight!r}"
                    ) from None
                checked_endpoints(given[-1:], f"{line_is} a worker")
        return checked_endpoints(given, where)

    def changed(self) -> bool:
        """Whether it is another one than was read last, by its inode, size and time of change.

        Not yet if it is another one than at the call before: it may be in the midst of being written.
        """
        before, self._last = self._last, self._present()
        return self._last != self._seen and self._last == before

    def missed(self) -> None:
        """It could not be read as it is now; the next change counts."""
        self._seen = self._present()

    def _present(self) -> object:
        try:
            return self._state()
        except OSError:
            return None

    def _state(self) -> tuple[int, int, int]:
        found = self._path.stat()
        return found.st_ino, found.st_size, found.st_mtime_ns


class Members:
    """Holds the fleet to what is given, and each worker to its health checks, until `run` is cancelled."""

    def __init__(
        self, fleet: Fleet, checks: HealthChecks, given: Mapping[str, float], file: WorkersFile | None
    ) -> None:
        self._fleet = fleet
        self._checks = checks
        self._given = given
        self._file = file
        self._watching = {worker.name: self._watch(worker.name) for worker in fleet.workers}

    def _watch(self, name: str) -> asyncio.Task[None]:
        worker = self._fleet.get(name)
        assert worker is not None
        return asyncio.create_task(self._checks.watch(worker))

    async def run(self) -> None:
        try:
            while self._file is not None:
                await asyncio.sleep(LOOK_EVERY_S)
                if self._file.changed():
                    await self._read_again(self._file)
            await asyncio.Event().wait()
        finally:
            for task in self._watching.values():
                task.cancel()

    async def _read_again(self, file: WorkersFile) -> None:
        try:
            wanted = joined(self._given, file.read())
            for name, weight in wanted.items():
                self._check(name, weight)
        except InputError as error:
            file.missed()
            line = f"{error}; the workers stay as they are"
            event(_logger, logging.WARNING, "workers_file_refused", line)
            return
        await self.become(wanted)

    def _check(self, name: str, weight: float) -> None:
        """Before anybody is removed. Raises InputError for a weight that the fleet would refuse."""
        try:
            self._fleet.check_weight(weight)
        except ValueError as error:
            raise InputError(f"--workers-file, worker {name}: {error}") from None

    async def become(self, wanted: Mapping[str, float]) -> None:
        """Remove who is not wanted, or with another weight; add who is, each after its first health check."""
        before = {worker.name for worker in self._fleet.workers}
        removed = [worker for worker in self._fleet.workers if wanted.get(worker.name) != worker.weight]
        staying = {worker.name for worker in self._fleet.workers} - {worker.name for worker in removed}
        added = [Endpoint(name, weight) for name, weight in wanted.items() if name not in staying]
        await asyncio.gather(*map(self._checks.first, added))
        for worker in removed:
            self._watching.pop(worker.name).cancel()
            self._fleet.remove(worker)
            if worker.name not in wanted:
                line = f"worker {worker.name} is removed, {worker.in_flight} requests in flight"
                event(_logger, logging.INFO, "worker_removed", line, worker=worker.name)
        for fresh in added:
            self._fleet.add(fresh)
            self._watching[fresh.name] = self._watch(fresh.name)
            if fresh.name in before:
                line = f"worker {fresh.name} has another weight, {fresh.weight:g}"
                event(_logger, logging.INFO, "worker_weight", line, worker=fresh.name)
            else:
                line = f"worker {fresh.name} is added"
                event(_logger, logging.INFO, "worker_added", line, worker=fresh.name)


def joined(given: Mapping[str, float], read: Mapping[str, float]) -> dict[str, float]:
    """Both. Raises InputError for a worker in both."""
    for name in read:
        if name in given:
            raise InputError(f"--workers-file names {name}, and so does --worker; leave it out of one")
    return {**given, **read}
