"""The resident block of a sample of a service's batch, for asyncio."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING

from coresched.client.embedded import check_loop
from coresched.client.errors import ServiceError
from coresched.client.remote.async_link import HEARD_S, Wait
from coresched.v1 import batches_pb2 as pb

if TYPE_CHECKING:
    from coresched.client.remote.async_sample import Sample


class Resident:
    """A sandbox that lives: entering waits for a resident slot, held until the block or the sample ends.

    `queue_s` is the wait. Turns and environment stages may be inside; leaving it with one of them open raises
    TransitionError, the slot having been given back.
    """

    def __init__(self, sample: Sample) -> None:
        self._sample = sample
        self._open = False
        self.queue_s = 0.0
        """Seconds this block waited for its slot; extend your own timeouts by it."""

    async def __aenter__(self) -> Resident:
        sample, link, steps = self._sample, self._sample.link, self._sample.steps()
        check_loop(link.loop)
        await sample.settled()
        steps.ask_resident()
        # Kept when the caller is cancelled: the service is told so before it hears that the call is gone.
        wait = sample.wait(link.stub.AcquireResident, pb.AcquireResidentRequest(**sample.named()), keep=True)
        try:
            reply = await wait.reply()
        except asyncio.CancelledError:
            await sample.settle(lambda: self._give_back(wait))
            raise
        except Exception:
            steps.move("resident_queued", "admitted")
            raise
        if not steps.housed():
            raise steps.went()
        self._open = True
        self.queue_s = reply.queue_s
        return self

    async def _give_back(self, wait: Wait) -> None:
        """The place in the queue, or the slot if the grant came first."""
        link = self._sample.link
        try:
            while True:
                try:
                    await link.call(link.stub.ReleaseResident, self._release(failed=True))
                    return
                except ServiceError as error:
                    if error.code != "FAILED_PRECONDITION":
                        raise
                if wait.refused:
                    return
                await asyncio.sleep(HEARD_S)  # the service has not heard of the wait yet
        finally:
            wait.give_up()
            self._sample.steps().move("resident_queued", "admitted")

    def _release(self, failed: bool) -> pb.ReleaseResidentRequest:
        return pb.ReleaseResidentRequest(failed=failed, **self._sample.named())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._open:
            return
        self._open = False
        sample, steps = self._sample, self._sample.steps()
        if kind is None:
            try:
                await sample.settled()
            except asyncio.CancelledError:
                await self._end(asyncio.CancelledError)
                raise
        if steps.ended:
            if kind is None:
                sample.link.session.check_not_lost()
            return
        await self._end(kind)

    async def _end(self, kind: type[BaseException] | None) -> None:
        sample = self._sample
        open_stage = sample.steps().unhoused(failed=kind is not None)
        if open_stage is not None:
            kind = type(open_stage)
        await sample.end(kind, sample.link.stub.ReleaseResident, self._release(failed=kind is not None))
        if open_stage is not None:
            raise open_stage
