"""What the blocks of an embedded batch do; its two faces, asyncio and threads, add how a caller waits."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Literal, Protocol

from coresched.batch.coordinator import Coordinator
from coresched.batch.history import Given, history_of
from coresched.batch.records import BatchSummary
from coresched.client.errors import LeaseExpiredError
from coresched.client.local import BatchReport, LocalBatch, Waiter
from coresched.client.turn import TurnFace, checked_exclude
from coresched.core.checks import check_positive
from coresched.core.routers import RouterName, make_router
from coresched.recording.events import BatchOptions
from coresched.recording.harness import BatchRecord


class LocalTurn(TurnFace):
    """One model call, routed by the batch's own router if it has workers."""

    def __init__(self, local: LocalBatch, label: str, exclude: Collection[str]) -> None:
        super().__init__(label, local.record.turn(label))
        self._local = local
        self._exclude = checked_exclude(exclude)

    def _start(self) -> None:
        self._opened(self._local.start_inference(self.label, self._exclude))

    def _end(self, failed: bool) -> None:
        if self._closed():
            self._record.ended(failed)
            self._local.end_inference(self.label, self.worker, failed)


class Timer(Protocol):
    def cancel(self) -> None: ...


class LocalEnvironment(ABC):
    """One environment stage: it holds an environment slot from its grant to the end of the block."""

    def __init__(self, local: LocalBatch, sample: str, max_s: float | None) -> None:
        self._local = local
        self._sample = sample
        self._record = local.record.stage(sample)
        self._max_s = None if max_s is None else check_positive(max_s, "max_s")
        self._timer: Timer | None = None
        self._open = False
        self.queue_s = 0.0
        """Seconds this stage waited for its slot; extend your own timeouts by it."""

    @abstractmethod
    def _start_timer(self, max_s: float, expire: Callable[[], None]) -> Timer:
        """Call `expire` after so many seconds, unless it is cancelled."""

    def _request(self, waiter: Waiter) -> None:
        self._record.requested()
        self._local.request_environment(self._sample, waiter)

    def _give_up(self) -> None:
        """The wait, or the slot that came meanwhile."""
        self._local.end_environment(self._sample, failed=True)

    def _granted(self) -> None:
        self._open = True
        self.queue_s = self._local.granted(self._sample)
        self._record.started()
        if self._max_s is not None:
            expire = partial(self._local.expire_environment, self._sample)
            self._timer = self._start_timer(self._max_s, expire)

    def _end(self, failed: bool) -> None:
        if not self._open:
            return
        self._open = False
        self._record.ended(failed)
        if self._timer is not None:
            self._timer.cancel()
        expired = self._local.end_environment(self._sample, failed)
        if expired and not failed and self._max_s is not None:
            raise LeaseExpiredError(self._sample, self._max_s)


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
        slack: int = 0,
        resident_concurrency: int | None = None,
        record: str | os.PathLike[str] | None = None,
        router: RouterName = "lbch",
        admission_policy: Literal["submission", "longest-expected-first"] = "submission",
        history: Given | None = None,
    ) -> None:
        """
        `sample_concurrency` (C_S, at least 1) samples are admitted and unfinished at a time, in the order of
        `admission_policy`: "submission", as they were entered, or "longest-expected-first" by `history`: a
        file of `coresched trace history`, or a mapping from sample id or task to a length in any one unit. A
        sample that it does not know counts with the median of the others. Samples that are entered while
        slots are free are admitted at once.

        `environment_concurrency` (C_E, at least 1, or None for no cap) environment stages run at a time, in
        the order of `environment_policy`: "fcfs", first come, first served, or "caas", ascending
        `(floor(a / band_s), -turns, floor(mean turn duration / bucket_s), entry)`, where a
        is seconds from the batch's first sample to the request. `resident_concurrency` (C_R, at least 1, or
        None for no cap) samples are inside `sample.resident()` at a time, first come, first served. With
        `workers` (names, or a mapping from name to weight) every turn is routed by its sample's id: to its
        home worker while that one's requests in flight are at most `load_bound` times the mean, the new one
        counted, and `slack` more, else to the next that qualifies. That is `router` "lbch", in which home is
        on a hash ring; with "sticky-bounded" it is where the sample's last turn went, the least loaded worker
        at first.
        `record` is a folder in which the batch's times are written down; it is made if it is not there, and
        others may record into it too. Leaving the batch raises RecordingError if something was not written.

        Raises TypeError or ValueError for a bad option.
        """
        coordinator = Coordinator(
            sample_concurrency,
            environment_concurrency,
            environment_policy=environment_policy,
            band_s=band_s,
            bucket_s=bucket_s,
            resident_concurrency=resident_concurrency,
            admission_policy=admission_policy,
        )
        routing = make_router(router, [] if workers is None else workers, load_bound, slack=slack)
        if workers is None and router != "lbch":
            raise ValueError(
                f"router is {router!r}, for workers to route among; give workers, or leave it out"
            )
        if workers is None and slack:
            raise ValueError(f"slack is {slack!r}, of workers to route among; give workers, or leave it out")
        if workers is not None and not routing.workers():
            raise ValueError(
                "workers must name at least one worker, got none; leave it out to route elsewhere"
            )
        options = BatchOptions(
            sample_concurrency, environment_concurrency, environment_policy, float(band_s), float(bucket_s)
        )
        self._local = LocalBatch(
            coordinator,
            None if workers is None else routing,
            BatchRecord(record, options),
            history_of(admission_policy, history),
        )

    def report(self) -> BatchReport:
        """Times of every sample and of the whole so far; after the batch has ended, the final ones."""
        return self._local.report()

    @property
    def progress(self) -> BatchSummary:
        """Where the whole batch stands."""
        return self._local.summary()
