"""The resident block of a sample of a service's batch, for threads."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from coresched.client.errors import BatchClosedError, ServiceError
from coresched.client.remote.blocking_link import CLEANUP_S, HEARD_S, BlockingWait
from coresched.v1 import batches_pb2 as pb

if TYPE_CHECKING:
    from coresched.client.remote.blocking_sample import Sample


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

    def __enter__(self) -> Resident:
        sample, link, steps = self._sample, self._sample.link, self._sample.steps()
        steps.ask_resident()
        wait = sample.wait(link.stub.AcquireResident, pb.AcquireResidentRequest(**sample.named()))
        try:
            reply = wait.send().reply()
        except Exception:
            steps.move("resident_queued", "admitted")
            raise
        except BaseException:  # interrupted
            self._give_back(wait)
            steps.move("resident_queued", "admitted")
            raise
        if not steps.housed():
            raise steps.went()
        self._open = True
        self.queue_s = reply.queue_s
        return self

    def _give_back(self, wait: BlockingWait) -> None:
        """The place in the queue, or the slot if the grant came first."""
        link = self._sample.link
        until = time.monotonic() + CLEANUP_S  # an interrupt may have struck before the wait was sent
        try:
            while time.monotonic() < until:
                try:
                    link.call(link.stub.ReleaseResident, self._release(failed=True))
                    return
                except ServiceError as error:
                    if error.code != "FAILED_PRECONDITION" or wait.refused:
                        return
                time.sleep(HEARD_S)  # the service has not heard of the wait yet
        except BatchClosedError:
            pass
        finally:
            wait.give_up()

    def _release(self, failed: bool) -> pb.ReleaseResidentRequest:
        return pb.ReleaseResidentRequest(failed=failed, **self._sample.named())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._open:
            return
        self._open = False
        sample, steps = self._sample, self._sample.steps()
        if steps.ended:
            if kind is None:
                sample.link.session.check_not_lost()
            return
        open_stage = steps.unhoused(failed=kind is not None)
        if open_stage is not None:
            kind = type(open_stage)
        sample.end(kind, sample.link.stub.ReleaseResident, self._release(failed=kind is not None))
        if open_stage is not None:
            raise open_stage
