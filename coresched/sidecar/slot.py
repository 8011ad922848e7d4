"""One environment slot of a trajectory, from its request to its return."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, TypeAlias

from coresched.logs import event
from coresched.sidecar.terms import TrajectoryEndedError

if TYPE_CHECKING:
    from coresched.client import embedded
    from coresched.client.remote import async_sample

    Sample: TypeAlias = embedded.Sample | async_sample.Sample

_logger = logging.getLogger(__name__)


class Slot:
    """Asks for a slot at once, after the steps in `after` have ended; holds it until `give_back`.

    `waiters` and `in_flight` are kept by its trajectory: who waits for the grant, and requests at the tool
    server that run in it.
    """

    def __init__(self, sample: Sample, after: Collection[asyncio.Task[None]]) -> None:
        self.waiters = 0
        self.in_flight = 0
        self.asked_at = asyncio.get_running_loop().time()
        self.queue_s = 0.0
        """Seconds from the request to the grant, as the batch counts them; 0 before."""
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.granted.add_done_callback(_seen)
        self._back = asyncio.Event()
        self.task = asyncio.create_task(self._hold(sample, after))

    @property
    def held(self) -> bool:
        """Whether it was granted and is not given back."""
        return self.granted.done() and not self._back.is_set() and not self.task.done()

    async def granted_within(self, limit_s: float | None) -> bool:
        """Wait for the grant; False if it did not come in time.

        Raises what the batch raises, or TrajectoryEndedError.
        """
        done, _ = await asyncio.wait((self.granted,), timeout=limit_s)
        if done:
            self.granted.result()
        return bool(done)

    def give_back(self) -> None:
        """Give it to the next or, if it was not granted yet, leave the queue."""
        if self.granted.done():
            self._back.set()
        else:
            self.task.cancel()
            self.granted.set_exception(TrajectoryEndedError)

    async def _hold(self, sample: Sample, after: Collection[asyncio.Task[None]]) -> None:
        if after:
            await asyncio.wait(after)
        try:
            async with sample.environment() as stage:
                self.queue_s = stage.queue_s
                if not self.granted.done():
                    self.granted.set_result(None)
                    await self._back.wait()
        except Exception as error:
            if self.granted.done():
                said = f"the slot of sample {sample.id!r} could not be given back: {error}"
                event(_logger, logging.ERROR, "batch_failed", said, sample=sample.id)
            else:
                self.granted.set_exception(error)


def _seen(granted: asyncio.Future[None]) -> None:
    """Whoever still waits gets the error; nobody has to."""
    granted.exception()
