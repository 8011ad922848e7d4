"""An event loop in a thread of its own, and the way to it from other threads and event loops."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, TypeVar

from coresched.client.errors import BatchClosedError

T = TypeVar("T")

Undo = Callable[[], Coroutine[Any, Any, object]]


class Home:
    """The loop and its thread. It belongs to the process that made it, not to a child forked from that."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()  # a loop alone keeps no task from being collected
        self._lock = threading.Lock()
        self._ended = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="coresched-gate", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T], undo: Undo | None = None) -> Call[T]:
        """Begin `work` at home. `undo` runs there if it succeeds although nobody waits for it any more.

        Raises RuntimeError in a forked child, BatchClosedError after the end.
        """
        try:
            with self._lock:  # so that nothing is posted after the loop's last step
                self.check()
                call = Call(self, work, undo)
                self._loop.call_soon_threadsafe(call.begin)
        except BaseException:
            work.close()
            raise
        return call

    def check(self) -> None:
        """Raises RuntimeError in a forked child, BatchClosedError after the end."""
        if os.getpid() != self._pid:
            raise RuntimeError(
                "this gate belongs to the process that this one was forked from; make one here, and share "
                "the batch through a service (CORESCHED_SERVICE)"
            )
        if self._ended:
            raise BatchClosedError("the gate was closed; make a new one for the next batch")

    def post(self, step: Callable[[], None]) -> None:
        """Call `step` at home, after what was posted before; nothing happens after the end."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(step)

    def task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Of the home loop, from within it."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def end(self) -> None:
        """Stop the loop, once. What still runs at home is cancelled, and whoever waits for it is told."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._ended:
                return
            self._ended = True
        asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _cancel_all(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Call(Generic[T]):
    """Work that runs at home and is waited for elsewhere, by one thread or one task."""

    def __init__(self, home: Home, work: Coroutine[Any, Any, T], undo: Undo | None) -> None:
        self._home = home
        self._work = work
        self._undo = undo
        self._task: asyncio.Task[T] | None = None
        self._abandoned = False
        self._future: Future[T] = Future()

    def begin(self) -> None:
        """At home."""
        self._task = self._home.task(self._work)
        self._task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[T]) -> None:
        if self._abandoned:
            self._revert(task)
        elif task.cancelled():
            self._future.set_exception(BatchClosedError("the gate was closed meanwhile"))
        elif (error := task.exception()) is not None:
            self._future.set_exception(error)
        else:
            self._future.set_result(task.result())

    def _abandon(self) -> None:
        """At home: nobody waits any more."""
        self._abandoned = True
        assert self._task is not None, "calls come home in the order they are made"
        if self._task.done():
            self._revert(self._task)
        elif self._undo is not None:
            self._task.cancel()

    def _revert(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled() and task.exception() is None and self._undo is not None:
            self._home.task(self._undo())

    def result(self) -> T:
        """The outcome, for a thread. An interrupt gives the wait up, and undoes it."""
        try:
            return self._future.result()
        except BaseException:
            self._give_up()
            raise

    async def outcome(self) -> T:
        """The outcome, for a task of asyncio or trio. Its cancellation gives the wait up, and undoes it."""
        try:
            await (_in_trio(self._future) if _on_trio() else _in_asyncio(self._future))
        except BaseException:
            self._give_up()
            raise
        return self._future.result()

    def _give_up(self) -> None:
        # One that failed has nothing to undo; one that succeeded meanwhile has.
        if not (self._future.done() and self._future.exception() is not None):
            self._home.post(self._abandon)


def _on_trio() -> bool:
    if "trio" not in sys.modules:
        return False
    import sniffio

    return sniffio.current_async_library() == "trio"


async def _in_asyncio(future: Future[Any]) -> None:
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    def from_home(_: object) -> None:
        with suppress(RuntimeError):  # the loop that waited is closed
            loop.call_soon_threadsafe(wake)

    future.add_done_callback(from_home)
    await woken


async def _in_trio(future: Future[Any]) -> None:
    import trio

    token = trio.lowlevel.current_trio_token()
    woken = trio.Event()

    def from_home(_: object) -> None:
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(woken.set)

    future.add_done_callback(from_home)
    await woken.wait()
