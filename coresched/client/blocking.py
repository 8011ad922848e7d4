"""The batch for harnesses with threads: `with` waits for a slot, leaving the block frees it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from types import TracebackType

from coresched.client.blocks import BatchBase, LocalEnvironment, LocalTurn
from coresched.client.local import BatchReport, LocalBatch
from coresched.client.recorded import end_recording_here
from coresched.client.residency import LocalResident


class _Wait:
    """One thread that waits for one slot, on a lock of its own: a free slot wakes exactly one thread."""

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()

    def wake(self) -> None:
        if self._gate.locked():
            self._gate.release()

    def wait(self) -> None:
        self._gate.acquire()


def _wait_for(block: LocalEnvironment | LocalResident) -> None:
    wait = _Wait()
    block._request(wait)
    try:
        wait.wait()
        block._granted()
    except BaseException:
        block._give_up()
        raise


class Turn(LocalTurn):
    """One model call, timed from the beginning of its `with` block to the end.

    `worker` is where to send it and `headers` what to send along. A block that raises counts as a failed
    turn; the sample may try another.
    """

    def __enter__(self) -> Turn:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(failed=kind is not None)


class Environment(LocalEnvironment):
    """One environment stage: entering waits for a slot, the block is the job. `queue_s` is the wait.

    A stage is all tool calls between two turns: run parallel calls inside one block.
    """

    def _start_timer(self, max_s: float, expire: Callable[[], None]) -> threading.Timer:
        timer = threading.Timer(max_s, expire)
        timer.daemon = True
        timer.start()
        return timer

    def __enter__(self) -> Environment:
        _wait_for(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(failed=kind is not None)


class Resident(LocalResident):
    """A sandbox that lives: entering waits for a resident slot, held until the block or the sample ends.

    `queue_s` is the wait. Turns and environment stages may be inside; leaving it with one of them open raises
    TransitionError, the slot having been given back.
    """

    def __enter__(self) -> Resident:
        _wait_for(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(failed=kind is not None)


class Sample:
    """One sample: entering waits for admission; its slot is held until the block ends, however it ends."""

    def __init__(self, local: LocalBatch, id: str, admitted: bool = False) -> None:
        self._local = local
        self._admitted = admitted  # and not entered
        self._record = local.record.sample(id)
        if admitted:
            self._record.admitted()
        self.id = id

    def inference(self, exclude: Collection[str] = ()) -> Turn:
        """The next model call; enter it with `with`.

        `exclude` names workers not to use for it, such as the one that failed it before. Entering raises
        TransitionError while a stage is open, LookupError if `exclude` names an unknown worker or all.
        """
        return Turn(self._local, self.id, exclude)

    def environment(self, max_s: float | None = None) -> Environment:
        """The next environment stage; entering it waits. Raises TransitionError while a stage is open.

        `max_s` is the longest that the stage may hold its slot, in seconds: then the slot goes to the next,
        and leaving the block raises LeaseExpiredError unless the block raised.
        """
        return Environment(self._local, self.id, max_s)

    def resident(self) -> Resident:
        """A resident slot, for a sandbox that lives as long as the block; entering it (`with`) waits.

        Between stages, one at a time: TransitionError while a stage is open or such a slot is held.
        """
        return Resident(self._local, self.id)

    def __enter__(self) -> Sample:
        if self._admitted:
            self._admitted = False
            return self
        self._local.enter(self.id)
        wait = _Wait()
        try:
            self._record.submitted()
            self._local.submit(self.id, wait)
            wait.wait()
            self._local.granted(self.id)
            self._record.admitted()
        except BaseException:
            self._local.leave(self.id, failed=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._local.leave(self.id, failed=kind is not None)
        self._record.ended(failed=kind is not None)


class Batch(BatchBase):
    """A batch of samples that share C_S sample slots and C_E environment slots, for any threads.

    Leaving the batch does not wait: join your threads first. Samples that have not ended are withdrawn, and
    whoever waits or takes a further step gets a BatchClosedError. A KeyboardInterrupt in a wait gives up
    the place in the queue.
    """

    def sample(self, id: str) -> Sample:
        """A sample of this batch, to be entered once; its id is its trajectory label.

        Raises TypeError or ValueError for an id that is no label or was used in this batch before.
        """
        return Sample(self._local, self._local.claim(id))

    def submit(self, ids: Iterable[str]) -> None:
        """Make samples known, for `admissions` to take up in the order of admission.

        Those known already stay as they are.

        Raises TypeError or ValueError for an id that is no label, before any is submitted.
        """
        self._local.offer(ids)

    def admissions(self) -> Iterator[Sample]:
        """Samples that were submitted, as they are admitted, until every sample of the batch has ended.

        They hold their sample slots already: enter each one with `with`, which ends it. Without any
        sample in the batch it waits for the first. Several threads may each iterate.
        """
        while True:
            wait = _Wait()
            name = self._local.seek(wait)
            if name == "":
                return
            try:
                wait.wait()
                if name is not None:
                    self._local.granted(name)
            except BaseException:
                self._local.stop_seeking(wait, name)
                raise
            if name is not None:
                yield Sample(self._local, name, admitted=True)

    def refresh(self) -> BatchReport:
        """The same as `report`, as for a service's batch, whose report has to be fetched."""
        return self.report()

    def __enter__(self) -> Batch:
        self._local.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._local.close()
        end_recording_here(self._local.record, kind)
