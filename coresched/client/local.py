"""What the asynchronous and the blocking batch share: one coordinator, one router, and who waits for what.

Every step takes the mutex, reads the clock once, tells the coordinator and wakes whom that let in. The two
faces add only how a caller waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from coresched.batch.coordinator import Coordinator
from coresched.batch.records import BatchSummary, SampleTimes, TransitionError
from coresched.client.errors import BatchClosedError
from coresched.client.turn import ROUTING_HEADER as ROUTING_HEADER
from coresched.client.turn import TurnFace
from coresched.core.checks import check_label
from coresched.core.ring import LoadBoundedRouter

_ENDED = ("finished", "withdrawn")


@dataclass(frozen=True, slots=True)
class BatchReport:
    """Where a batch's time went. Points in time are seconds since the batch was entered."""

    totals: BatchSummary
    samples: dict[str, SampleTimes]
    """By sample id, in submission order."""


class Waiter(Protocol):
    """One caller that waits for one slot."""

    def wake(self) -> None:
        """Let the caller go on and ask `LocalBatch.granted` what it got. Never blocks; may come twice."""


class LocalBatch:
    """The steps of a batch inside this process. Safe for several threads; no step waits for a slot."""

    def __init__(self, coordinator: Coordinator, router: LoadBoundedRouter | None) -> None:
        self._coordinator = coordinator
        self._router = router
        self._lock = threading.Lock()
        self._waiters: dict[str, Waiter] = {}  # by sample: it waits for admission or for an environment slot
        self._not_entered: set[str] = set()  # samples that exist but were not submitted yet
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
            for waiter in self._waiters.values():
                waiter.wake()
            self._waiters.clear()

    def claim(self, name: str) -> str:
        """Reserve the id for one Sample object, so that what it frees later can only be its own; the id."""
        name = check_label(name, "sample id")
        with self._lock:
            self._check_open()
            if name in self._not_entered or name in self._coordinator:
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
            self._coordinator.submit(name, now)
            self._grant(now)

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

    def start_inference(self, name: str) -> str | None:
        """Begin a turn; the worker it was routed to, or None without workers."""
        with self._lock:
            now = self._now()
            self._coordinator.start_inference(name, now)
            return None if self._router is None else self._router.route(name)

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
            self._coordinator.request_environment(name, now)
            self._waiters[name] = waiter
            self._grant(now)

    def end_environment(self, name: str, failed: bool) -> None:
        """Give the slot back or, if the job never got one, leave the queue."""
        with self._lock:
            if self._coordinator.state(name) in _ENDED:
                return
            now = self._now()
            if failed:
                self._waiters.pop(name, None)
                self._coordinator.cancel_environment(name, now)
            else:
                self._coordinator.finish_environment(name, now)
            self._grant(now)

    def granted(self, name: str) -> float:
        """After a wait: the seconds that the sample's latest environment job was queued, 0 if it had none.

        Raises BatchClosedError or TransitionError if the wait ended because the batch or the sample did.
        """
        with self._lock:
            self._check_open()
            times = self._coordinator.times(name)
        if times.state in _ENDED:
            raise TransitionError(name, times.state, "a wait for a slot")
        if times.environment_started_at is None or times.environment_requested_at is None:
            return 0.0
        return times.environment_started_at - times.environment_requested_at

    def report(self) -> BatchReport:
        with self._lock:
            names = self._coordinator.samples()
            return BatchReport(
                totals=self._coordinator.summary(),
                samples={name: self._coordinator.times(name) for name in names},
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

    def _grant(self, now: float) -> None:
        for name in self._coordinator.admit(now):
            self._wake(name)
        for name in self._coordinator.dispatch(now):
            self._wake(name)

    def _wake(self, name: str) -> None:
        # None if an interrupt struck between request and record; leaving the sample then frees the slot.
        waiter = self._waiters.get(name)
        if waiter is not None:
            waiter.wake()  # before it is forgotten, so that close() would find it after an interrupt here
            del self._waiters[name]


class LocalTurn(TurnFace):
    """One model call, routed by the batch's own router if it has workers."""

    def __init__(self, local: LocalBatch, label: str) -> None:
        super().__init__(label)
        self._local = local

    def _start(self) -> None:
        self._opened(self._local.start_inference(self.label))

    def _end(self, failed: bool) -> None:
        if self._closed():
            self._local.end_inference(self.label, self.worker, failed)


class LocalEnvironment:
    """One environment stage: it holds an environment slot from its grant to the end of the block."""

    def __init__(self, local: LocalBatch, sample: str) -> None:
        self._local = local
        self._sample = sample
        self._open = False
        self.queue_s = 0.0
        """Seconds this stage waited for its slot; extend your own timeouts by it."""

    def _granted(self) -> None:
        self._open = True
        self.queue_s = self._local.granted(self._sample)

    def _end(self, failed: bool) -> None:
        if self._open:
            self._open = False
            self._local.end_environment(self._sample, failed)


class BatchBase:
    """What every `Batch` takes and reports."""

    def __init__(
        self,
        *,
        sample_concurrency: int,
        environment_concurrency: int | None = None,
        environment_policy: Literal["fcfs", "caas"] = "caas",
        band_s: float = 30.0,
        bucket_s: float = 1.0,
        workers: Iterable[str] | Mapping[str, float] | None = None,
        load_bound: float = 1.25,
    ) -> None:
        """
        `sample_concurrency` (C_S, at least 1) samples are admitted and unfinished at a time, in the order in
        which they were entered. `environment_concurrency` (C_E, at least 1, or None for no cap) environment
        stages run at a time, in the order of `environment_policy`: "fcfs", first come, first served, or
        "caas", ascending `(floor(a / band_s), -turns, floor(mean turn duration / bucket_s), entry)`, where a
        is seconds from the batch's first sample to the request. With `workers` (names, or a mapping from name
        to weight) every turn is routed by its sample's id: to its home worker while that one's requests in
        flight are at most `load_bound` times the mean, the new one counted, else to the next that qualifies.

        Raises TypeError or ValueError for a bad option.
        """
        coordinator = Coordinator(
            sample_concurrency,
            environment_concurrency,
            environment_policy=environment_policy,
            band_s=band_s,
            bucket_s=bucket_s,
        )
        router = LoadBoundedRouter([] if workers is None else workers, load_bound=load_bound)
        if workers is not None and not router.workers():
            raise ValueError(
                "workers must name at least one worker, got none; leave it out to route elsewhere"
            )
        self._local = LocalBatch(coordinator, None if workers is None else router)

    def report(self) -> BatchReport:
        """Times of every sample and of the whole so far; after the batch has ended, the final ones."""
        return self._local.report()
