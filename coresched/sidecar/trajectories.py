"""All trajectories by label, each label's lives, and the calls that belong to none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from coresched.client.errors import SampleEndedError, SampleTakenError
from coresched.sidecar.counts import Counts
from coresched.sidecar.pending import PendingCalls
from coresched.sidecar.terms import QueueDeadlineError, Terms
from coresched.sidecar.trajectory import Trajectory

if TYPE_CHECKING:
    from typing import TypeAlias

    from coresched.client import embedded
    from coresched.client.remote import async_batch

    Batch: TypeAlias = embedded.Batch | async_batch.RemoteBatch


class Trajectories:
    """Every label's present life; for one event loop, inside the batch."""

    def __init__(self, batch: Batch, terms: Terms, *, environment_concurrency: int | None) -> None:
        self.batch = batch
        self.pending = PendingCalls()
        self.counts = Counts()
        self.lives: list[Trajectory] = []
        """In the order in which they began; those that ended, too."""
        self._terms = terms
        self._present: dict[str, Trajectory] = {}
        self._number: dict[str, int] = {}
        self._ending: set[Trajectory] = set()
        self._unmatched = (
            None if environment_concurrency is None else asyncio.Semaphore(environment_concurrency)
        )

    def present(self, label: str) -> Trajectory | None:
        """The label's trajectory, if it has begun and not ended."""
        return self._present.get(label)

    @asynccontextmanager
    async def request(self, label: str) -> AsyncIterator[Trajectory]:
        """An LLM request of this label, from its admission on."""
        while True:
            trajectory = self._present.get(label) or self._begun(label)
            try:
                await trajectory.join()
            except (SampleEndedError, SampleTakenError):
                continue  # in an earlier run of the sidecar, or in another one
            break
        try:
            yield trajectory
        finally:
            trajectory.leave()

    @asynccontextmanager
    async def unmatched(self) -> AsyncIterator[None]:
        """A call of no known trajectory, in one of C_E places that such calls share, first come first served.

        They are beside the batch's slots, for the call may be of a trajectory that holds one and would wait
        for itself. Raises QueueDeadlineError.
        """
        places = self._unmatched
        if places is None:
            yield
            return
        try:
            await asyncio.wait_for(places.acquire(), self._terms.queue_deadline_s)
        except asyncio.TimeoutError:
            self.counts.expired_calls += 1
            raise QueueDeadlineError from None
        except asyncio.CancelledError:
            self.counts.dropped_calls += 1
            raise
        try:
            yield
        finally:
            places.release()

    async def close(self) -> None:
        """End all that are left: as withdrawn, but for those that only did not go on yet."""
        for trajectory in list(self._present.values()):
            trajectory.end(withdrawn=not trajectory.finished)
        await asyncio.gather(*(trajectory.closed() for trajectory in self._ending))

    def _begun(self, label: str) -> Trajectory:
        number = self._number[label] = self._number.get(label, 0) + 1
        sample = self.batch.sample(label if number == 1 else f"{label}#{number}")
        trajectory = Trajectory(label, sample, self._terms, self.pending, self.counts, self._ended)
        self._present[label] = trajectory
        self.lives.append(trajectory)
        return trajectory

    def _ended(self, trajectory: Trajectory) -> None:
        if self._present.get(trajectory.label) is trajectory:
            del self._present[trajectory.label]
        self._ending.add(trajectory)
        asyncio.ensure_future(trajectory.closed()).add_done_callback(
            lambda _: self._ending.discard(trajectory)
        )
