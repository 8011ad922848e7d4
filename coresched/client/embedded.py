"""The batch inside an asyncio harness: `async with` waits for a slot, leaving the block frees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from types import TracebackType

from coresched.client.blocks import BatchBase, LocalEnvironment, LocalTurn
from coresched.client.local import BatchReport, LocalBatch
from coresched.client.recorded import end_recording
from coresched.client.residency import LocalResident


def check_loop(home: asyncio.AbstractEventLoop) -> None:
    """Raises RuntimeError on any other event loop than the batch's own."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is not home:
        raise RuntimeError(
            "this batch belongs to the event loop it was entered on and was used from another; "
            "give each loop its own Batch, or use coresched.sync.Batch from threads"
        )


class _Wait:
    """One task that waits for one slot."""

    def __init__(self) -> None:
        self._woken = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        if not self._woken.done():  # cancelled: the task gives the slot back as it unwinds
            self._woken.set_result(None)

    async def wait(self) -> None:
        await self._woken


async def _wait_for(block: LocalEnvironment | LocalResident) -> None:
    wait = _Wait()
    block._request(wait)
    try:
        await wait.wait()
        block._granted()
    except BaseException:
        block._give_up()
        raise


class Turn(LocalTurn):
    """One model call, timed from the beginning of its `async with` block to the end.

    `worker` is where to send it and `headers` what to send along. A block that raises or is cancelled
    counts as a failed turn; the sample may try another.
    """

    def __init__(
        self, local: LocalBatch, label: str, exclude: Collection[str], loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(local, label, exclude)
        self._loop = loop

    async def __aenter__(self) -> Turn:
        check_loop(self._loop)
        self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(failed=kind is not None)


class Environment(LocalEnvironment):
    """One environment stage: entering waits for a slot, the block is the job. `queue_s` is the wait.

    A stage is all tool calls between two turns: gather parallel calls inside one block.
    """

    def __init__(
        self, local: LocalBatch, sample: str, max_s: float | None, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(local, sample, max_s)
        self._loop = loop

    def _start_timer(self, max_s: float, expire: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(max_s, expire)

    async def __aenter__(self) -> Environment:
        check_loop(self._loop)
        await _wait_for(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(failed=kind is not None)


class Resident(LocalResident):
    """A sandbox that lives: entering waits for a resident slot, held until the block or the sample ends.

    `queue_s` is the wait. Turns and environment stages may be inside; leaving it with one of them open raises
    TransitionError, the slot having been given back.
    """

    def __init__(self, local: LocalBatch, sample: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(local, sample)
        self._loop = loop

    async def __aenter__(self) -> Resident:
        check_loop(self._loop)
        await _wait_for(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(failed=kind is not None)


class Sample:
    """One sample: entering waits for admission; its slot is held until the block ends, however it ends."""

    def __init__(
        self, local: LocalBatch, id: str, loop: asyncio.AbstractEventLoop, admitted: bool = False
    ) -> None:
        self._local = local
        self._admitted = admitted  # and not entered
        self._record = local.record.sample(id)
        if admitted:
            self._record.admitted()
        self._loop = loop
        self.id = id

    def inference(self, exclude: Collection[str] = ()) -> Turn:
        """The next model call; enter it with `async with`.

        `exclude` names workers not to use for it, such as the one that failed it before. Entering raises
        TransitionError while a stage is open, LookupError if `exclude` names an unknown worker or all.
        """
        return Turn(self._local, self.id, exclude, self._loop)

    def environment(self, max_s: float | None = None) -> Environment:
        """The next environment stage; entering it waits. Raises TransitionError while a stage is open.

        `max_s` is the longest that the stage may hold its slot, in seconds: then the slot goes to the next,
        and leaving the block raises LeaseExpiredError unless the block raised.
        """
        return Environment(self._local, self.id, max_s, self._loop)

    def resident(self) -> Resident:
        """A resident slot, for a sandbox that lives as long as the block; entering it (`async with`) waits.

        Between stages, one at a time: TransitionError while a stage is open or such a slot is held.
        """
        return Resident(self._local, self.id, self._loop)

    async def __aenter__(self) -> Sample:
        check_loop(self._loop)
        if self._admitted:
            self._admitted = False
            return self
        self._local.enter(self.id)
        wait = _Wait()
        try:
            self._record.submitted()
            self._local.submit(self.id, wait)
            await wait.wait()
            self._local.granted(self.id)
            self._record.admitted()
        except BaseException:
            self._local.leave(self.id, failed=True)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._local.leave(self.id, failed=kind is not None)
        self._record.ended(failed=kind is not None)


class Batch(BatchBase):
    """A batch of samples that share C_S sample slots and C_E environment slots, for one event loop.

    Leaving the batch does not wait: end your tasks first, for example with `asyncio.gather`. Samples that
    have not ended are withdrawn, and whoever waits or takes a further step gets a BatchClosedError.

    A use from another event loop raises RuntimeError. For threads there is `coresched.sync`.
    """

    _loop: asyncio.AbstractEventLoop

    def sample(self, id: str) -> Sample:
        """A sample of this batch, to be entered once; its id is its trajectory label.

        Raises TypeError or ValueError for an id that is no label or was used in this batch before.
        """
        return Sample(self._local, self._local.claim(id), self._loop)

    async def submit(self, ids: Iterable[str]) -> None:
        """Make samples known, for `admissions` to take up in the order of admission.

        Those known already stay as they are.

        Raises TypeError or ValueError for an id that is no label, before any is submitted.
        """
        self._local.offer(ids)

    async def admissions(self) -> AsyncIterator[Sample]:
        """Samples that were submitted, as they are admitted, until every sample of the batch has ended.

        They hold their sample slots already: enter each one with `async with`, which ends it. Without any
        sample in the batch it waits for the first.
        """
        self._local.check_open()
        while True:
            check_loop(self._loop)
            wait = _Wait()
            name = self._local.seek(wait)
            if name == "":
                return
            try:
                await wait.wait()
                if name is not None:
                    self._local.granted(name)
            except BaseException:
                self._local.stop_seeking(wait, name)
                raise
            if name is not None:
                yield Sample(self._local, name, self._loop, admitted=True)

    async def refresh(self) -> BatchReport:
        """The same as `report`, as for a service's batch, whose report has to be fetched."""
        return self.report()

    async def __aenter__(self) -> Batch:
        loop = asyncio.get_running_loop()
        self._local.open()
        self._loop = loop
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._local.close()
        await end_recording(self._local.record, kind)
