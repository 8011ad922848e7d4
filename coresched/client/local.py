"""What the asynchronous and the blocking batch share: one coordinator, one router, and who waits for what.

Every step takes the mutex, reads the clock once, tells the coordinator and wakes whom that let in. The blocks
of a harness (`blocks.py`) and its two faces add only how a caller waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from coresched.batch.coordinator import Coordinator
from coresched.batch.history import History
from coresched.batch.records import BatchSummary, SampleTimes, TransitionError
from coresched.client.errors import BatchClosedError as BatchClosedError
from coresched.client.offers import Offers
from coresched.client.turn import ROUTING_HEADER as ROUTING_HEADER
from coresched.client.turn import SESSION_HEADER as SESSION_HEADER
from coresched.core.checks import check_label, check_several
from coresched.core.ring import LoadBoundedRouter
from coresched.recording.harness import NOT_RECORDED, BatchRecord

_ENDED = ("finished", "withdrawn")


@dataclass(frozen=True, slots=True)
class BatchReport:
    """Where a batch's time went. Points in time are seconds since the batch was entered."""

    totals: BatchSummary
    samples: dict[str, SampleTimes]
    """By sample id, in submission order."""


def checked_ids(ids: Iterable[str]) -> list[str]:
    """Sample ids to submit. Raises TypeError or ValueError for anything else, a lone str among it."""
    return [check_label(id, "sample id") for id in check_several(ids, "ids", "an iterable of sample ids")]


class Waiter(Protocol):
    """One caller that waits for one slot."""

    def wake(self) -> None:
        """Let the caller go on and ask `LocalBatch.granted` what it got. Never blocks; may come twice."""


class LocalBatch:
    """The steps of a batch inside this process. Safe for several threads; no step waits for a slot."""

    def __init__(
        self,
        coordinator: Coordinator,
        router: LoadBoundedRouter | None,
        record: BatchRecord = NOT_RECORDED,
        history: History | None = None,
    ) -> None:
        self.record = record
        self._history = history
        self._coordinator = coordinator
        self._router = router
        self._lock = threading.Lock()
        self._waiters: dict[str, Waiter] = {}  # by sample: it waits for admission or a slot
        self._not_entered: set[str] = set()  # samples that exist but were not submitted yet
        self._offers = Offers(coordinator.admission_policy)
        self._seekers: list[Waiter] = []  # they wait for an offer, or for the end of all samples
        self._expired: set[str] = set()  # samples whose stage goes on without its slot
        self._opened_at: float | None = None
        self._closed = False

    def open(self) -> None:
        with self._lock:
            if self._opened_at is not None:
                raise RuntimeError("a batch can be entered once; make a new Batch for the next one")
            self._opened_at = time.monotonic()

    def close(self) -> None:
        """Withdraw every sample that has not ended; whoever waits gets a BatchClosedError."""
        with self._lock:
            if self._closed:
                return
            now = self._now()
            self._closed = True
            for name in self._coordinator.samples():
                if self._coordinator.state(name) not in _ENDED:
                    self._coordinator.withdraw(name, now)
            self._offers.clear()
            for waiter in self._waiters.values():
                waiter.wake()
            self._waiters.clear()
            self._wake_seekers()

    def claim(self, name: str) -> str:
        """Reserve the id for one Sample object, so that what it frees later can only be its own; the id."""
        name = check_label(name, "sample id")
        with self._lock:
            self._check_open()
            if name in self._offers:
                self._offers.take(name)
            elif name in self._not_entered or name in self._coordinator:
                raise ValueError(
                    f"a sample id must be new to the batch, got {name!r} again; give a retry an id of its own"
                )
            self._not_entered.add(name)
        return name

    def enter(self, name: str) -> None:
        with self._lock:
            self._check_open()
            if name not in self._not_entered:
                raise RuntimeError(f"sample {name!r} can be entered once; give a retry an id of its own")
            self._not_entered.remove(name)

    def submit(self, name: str, waiter: Waiter) -> None:
        with self._lock:
            now = self._now()
            self._waiters[name] = waiter
            self._coordinator.submit(name, now, self._expected(name))
            self._grant(now)

    def _expected(self, name: str) -> float | None:
        return None if self._history is None else self._history.expected(name)

    def leave(self, name: str, failed: bool) -> None:
        """End the sample, whatever it holds or waits for; nothing happens if it has ended already.

        Raises TransitionError, the sample having been withdrawn, if it succeeded with a stage still open.
        """
        with self._lock:
            waiter = self._waiters.pop(name, None)
            if waiter is not None:
                waiter.wake()  # a task of the sample that outlived it must not wait for ever
            if name not in self._coordinator or self._coordinator.state(name) in _ENDED:
                return
            now = self._now()
            try:
                if not failed:
                    self._coordinator.finish(name, now)
            finally:
                if self._coordinator.state(name) not in _ENDED:
                    self._coordinator.withdraw(name, now)
                self._grant(now)
                if self._complete():
                    self._wake_seekers()

    def offer(self, names: Iterable[str]) -> None:
        """Make samples known for `seek` to take; those known already stay as they are."""
        checked = checked_ids(names)
        self.record.offered(checked)
        with self._lock:
            now = self._now()
            for name in checked:
                if name not in self._not_entered and name not in self._coordinator:
                    expected = self._expected(name)
                    self._coordinator.submit(name, now, expected)
                    self._coordinator.put_back(name, now)
                    self._offers.add(name, expected)
            self._wake_seekers()

    def seek(self, waiter: Waiter) -> str | None:
        """Take the first sample offered, for whose admission the waiter waits then.

        Empty if every sample has ended; None if it has to wait before it seeks again.
        """
        with self._lock:
            now = self._now()
            name = self._offers.first()
            if name is not None:
                self._offers.take(name)
                self._waiters[name] = waiter
                self._coordinator.submit(name, now)
                self._grant(now)
                return name
            if self._complete():
                return ""
            self._seekers.append(waiter)
            return None

    def stop_seeking(self, waiter: Waiter, name: str | None) -> None:
        """The wait after `seek` was given up: the sample, if it took one, is offered again."""
        with self._lock:
            if waiter in self._seekers:
                self._seekers.remove(waiter)
            if name is None or self._closed or self._coordinator.state(name) in _ENDED:
                return
            now = self._now()
            self._waiters.pop(name, None)
            self._coordinator.put_back(name, now)
            self._offers.put_back(name)
            self._grant(now)
            self._wake_seekers()

    def start_inference(self, name: str, exclude: Collection[str] = ()) -> str | None:
        """Begin a turn; the worker it was routed to, or None without workers.

        Raises LookupError, the turn not having begun, if `exclude` names an unknown worker or leaves none.
        """
        with self._lock:
            now = self._now()
            self._check_entered(name)
            if self._router is None and exclude:
                raise LookupError("exclude must name workers of the batch, which has none; leave it out")
            worker = None if self._router is None else self._router.route(name, exclude)
            try:
                self._coordinator.start_inference(name, now)
            except BaseException:
                if self._router is not None and worker is not None:
                    self._router.release(worker)
                raise
            return worker

    def end_inference(self, name: str, worker: str | None, failed: bool) -> None:
        with self._lock:
            if self._router is not None and worker is not None:
                self._router.release(worker)
            if self._coordinator.state(name) in _ENDED:
                return
            if failed:
                self._coordinator.cancel_inference(name, self._now())
            else:
                self._coordinator.finish_inference(name, self._now())

    def request_environment(self, name: str, waiter: Waiter) -> None:
        with self._lock:
            now = self._now()
            self._check_entered(name)
            self._coordinator.request_environment(name, now)
            self._waiters[name] = waiter
            self._grant(now)

    def expire_environment(self, name: str) -> None:
        """The slot goes to the next, while the stage goes on; nothing happens if it has ended."""
        with self._lock:
            if self._closed or self._coordinator.state(name) != "environment":
                return
            now = self._now()
            self._expired.add(name)
            self._coordinator.cancel_environment(name, now)
            self._grant(now)

    def end_environment(self, name: str, failed: bool) -> bool:
        """Give the slot back or, if the job never got one, leave the queue; whether it had expired."""
        with self._lock:
            if name in self._expired:
                self._expired.remove(name)
                return True
            if self._coordinator.state(name) in _ENDED:
                return False
            now = self._now()
            if failed:
                self._waiters.pop(name, None)
                self._coordinator.cancel_environment(name, now)
            else:
                self._coordinator.finish_environment(name, now)
            self._grant(now)
            return False

    def request_resident(self, name: str, waiter: Waiter) -> None:
        with self._lock:
            now = self._now()
            self._check_entered(name)
            self._coordinator.request_resident(name, now)
            self._waiters[name] = waiter
            self._grant(now)

    def end_resident(self, name: str, failed: bool) -> None:
        """Give the resident slot back or, if it never got one, leave the queue for it.

        Raises TransitionError, the slot having been given back, if that did not fail and a stage is still
        open: the sandbox that the stage needs has gone with the block.
        """
        with self._lock:
            if self._coordinator.state(name) in _ENDED:
                return
            now = self._now()
            if failed:
                self._waiters.pop(name, None)
                self._coordinator.cancel_resident(name, now)
                self._grant(now)
                return
            try:
                self._coordinator.finish_resident(name, now)
            except TransitionError:
                self._coordinator.cancel_resident(name, now)
                raise
            finally:
                self._grant(now)

    def resident_granted(self, name: str) -> float:
        """After a wait: the seconds that the sample queued for its resident slot. Raises as `granted`."""
        times = self._after_wait(name)
        if times.resident_started_at is None or times.resident_requested_at is None:
            return 0.0
        return times.resident_started_at - times.resident_requested_at

    def granted(self, name: str) -> float:
        """After a wait: the seconds that the sample's latest environment job was queued, 0 if it had none.

        Raises BatchClosedError or TransitionError if the wait ended because the batch or the sample did.
        """
        times = self._after_wait(name)
        if times.environment_started_at is None or times.environment_requested_at is None:
            return 0.0
        return times.environment_started_at - times.environment_requested_at

    def _after_wait(self, name: str) -> SampleTimes:
        with self._lock:
            self._check_open()
            times = self._coordinator.times(name)
        if times.state in _ENDED:
            raise TransitionError(name, times.state, "a wait for a slot")
        return times

    def report(self) -> BatchReport:
        with self._lock:
            names = self._coordinator.samples()
            return BatchReport(
                totals=self._coordinator.summary(),
                samples={name: self._coordinator.times(name) for name in names},
            )

    def summary(self) -> BatchSummary:
        with self._lock:
            return self._coordinator.summary()

    def check_open(self) -> None:
        """Raises RuntimeError before the batch was entered, BatchClosedError after its end."""
        with self._lock:
            self._check_open()

    def _check_entered(self, name: str) -> None:
        if name in self._not_entered:
            raise RuntimeError(
                f"sample {name!r} must be entered before its stages, with `with` or `async with`"
            )

    def _check_open(self) -> float:
        """When the batch was entered, on the system's monotonic clock."""
        if self._opened_at is None:
            raise RuntimeError("the batch is not open; enter it first, with `with` or `async with`")
        if self._closed:
            raise BatchClosedError("the batch has ended; samples that had not were withdrawn")
        return self._opened_at

    def _now(self) -> float:
        return time.monotonic() - self._check_open()

    def _complete(self) -> bool:
        ended = self._coordinator.finished + self._coordinator.withdrawn
        return 0 < len(self._coordinator) == ended

    def _wake_seekers(self) -> None:
        for waiter in self._seekers:
            waiter.wake()
        self._seekers.clear()

    def _grant(self, now: float) -> None:
        for name in self._coordinator.admit(now):
            self._wake(name)
        for name in self._coordinator.grant_residents(now):
            self._wake(name)
        for name in self._coordinator.dispatch(now):
            self._wake(name)

    def _wake(self, name: str) -> None:
        # None if an interrupt struck between request and record; leaving the sample then frees the slot.
        waiter = self._waiters.get(name)
        if waiter is not None:
            waiter.wake()  # before it is forgotten, so that close() would find it after an interrupt here
            del self._waiters[name]
