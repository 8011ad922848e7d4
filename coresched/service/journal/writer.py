"""The journal of a running service: facts gathered on the event loop, written in groups by one thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from heapq import heappop, heappush
from queue import Empty, SimpleQueue
from threading import Thread
from time import perf_counter
from typing import NoReturn

import msgspec

from coresched.metrics.histogram import COMMIT_S, Histogram
from coresched.service.batches.facts import AnyFact
from coresched.service.batches.log import JournalError
from coresched.service.journal.store import Forgotten, Row, Store

_encode = msgspec.json.Encoder().encode


class Journal:
    """A FactLog in a file. Open, read `facts`, then `start` on the event loop, `close` in the end.

    While one group of facts is written, the next gathers: the more calls wait, the fewer writes each costs.
    """

    def __init__(self, path: str) -> None:
        """Raises InputError, having changed nothing, if the file cannot be used; see Store."""
        self._store = Store(path)
        self._path = path
        self._sequence = self._store.last()
        self._found = self._durable = self._sequence
        self.commit_s = Histogram(COMMIT_S)
        """What each write of a group of facts took, until it was on the disk."""
        self._failure: str | None = None
        self._work: SimpleQueue[Row | Forgotten | None] = SimpleQueue()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._waits = 0

    @property
    def written(self) -> int:
        """Facts on the disk that were appended since `start`."""
        return self._durable - self._found

    @property
    def pending(self) -> int:
        """Facts appended and not yet on the disk."""
        return self._sequence - self._durable

    def facts(self) -> Iterator[tuple[int, AnyFact]]:
        """What the file has, in order, with sequence numbers; see Store.facts. Before `start`."""
        return self._store.facts()

    def start(self, on_failure: Callable[[str], None]) -> None:
        """Begin to take facts, on the running event loop.

        `on_failure` is called there, once, with one sentence, when the file cannot be written any more.
        Nothing is durable from then on. Raises InputError if another process was faster.
        """
        self._store.begin()
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._thread = Thread(target=self._write_all, name="journal", daemon=True)
        self._thread.start()

    def append(self, fact: AnyFact) -> int:
        """Take a fact, without waiting; its sequence number."""
        self._sequence += 1
        # Encoded here, so that what comes out is the fact as it was.
        self._work.put(Row(self._sequence, getattr(fact, "key", None), _encode(fact)))
        return self._sequence

    async def committed(self, sequence: int) -> None:
        """Return once the fact is on the disk, and so all before it. Raises JournalError if it cannot be."""
        if sequence <= self._durable:
            return
        if self._failure is not None:
            raise JournalError(self._failure)
        done: asyncio.Future[None] = self._loop.create_future()
        self._waits += 1
        heappush(self._waiting, (sequence, self._waits, done))
        await done

    def forget(self, keys: Collection[int]) -> None:
        """Delete the facts of these batches, all that were appended before."""
        self._work.put(Forgotten(tuple(keys)))

    async def close(self) -> None:
        """Write what was appended, then leave one whole file behind. Nothing is durable from then on."""
        self._work.put(None)
        await asyncio.to_thread(self._thread.join)
        self._end("the journal is closed")

    def leave(self) -> None:
        """Close the file as it was found, instead of `start`."""
        self._store.leave()

    def refuse(self, what: str, fix: str) -> NoReturn:
        """Leave, and raise InputError: what is wrong with the file, and the fix."""
        self._store.refuse(what, fix)

    def _write_all(self) -> None:
        """The thread: what has gathered, each time in one transaction."""
        going = True
        failed = False
        while going:
            work, going = self._gathered()
            if failed or not work:
                continue
            began = perf_counter()
            try:
                self._store.write(work)
            except Exception as error:
                failed = True
                self._loop.call_soon_threadsafe(self._fail, f"{self._path!r} cannot be written: {error}")
            else:
                written = max((item.sequence for item in work if isinstance(item, Row)), default=0)
                self._loop.call_soon_threadsafe(self._advance, written, perf_counter() - began)
        self._store.close()

    def _gathered(self) -> tuple[list[Row | Forgotten], bool]:
        """All work there is, at least one piece, and whether more may come."""
        work: list[Row | Forgotten] = []
        item = self._work.get()
        while item is not None:
            work.append(item)
            try:
                item = self._work.get_nowait()
            except Empty:
                return work, True
        return work, False

    def _advance(self, written: int, seconds: float) -> None:
        self.commit_s.observe(seconds)
        self._durable = max(self._durable, written)
        while self._waiting and self._waiting[0][0] <= self._durable:
            _, _, done = heappop(self._waiting)
            if not done.done():  # its call may have been cancelled
                done.set_result(None)

    def _fail(self, why: str) -> None:
        self._end(why)
        self._on_failure(why)

    def _end(self, why: str) -> None:
        """Answer whoever waits, now and later, that it is not durable; the first reason stays."""
        if self._failure is None:
            self._failure = why
        for _, _, done in self._waiting:
            if not done.done():
                done.set_exception(JournalError(self._failure))
        self._waiting.clear()
