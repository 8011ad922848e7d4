"""The gate: a batch, embedded or a service's, on an event loop of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from coresched.batch.history import Given
from coresched.batch.records import BatchSummary
from coresched.client.connect import connect
from coresched.client.embedded import Batch
from coresched.client.errors import BatchClosedError
from coresched.client.gate.blocks import Sample
from coresched.client.gate.home import Home
from coresched.client.local import BatchReport
from coresched.client.lookup import Lookup
from coresched.core.routers import RouterName
from coresched.errors import InputError

if TYPE_CHECKING:  # which loads gRPC
    from coresched.client.remote.async_batch import RemoteBatch


class Gate:
    """A batch for harnesses with threads, several event loops (asyncio, trio), or both.

    The blocks of its samples work with `with` and with `async with`. `coresched.Batch` and
    `coresched.sync.Batch` do the same for one loop, and for threads, with less on the way: a step of a gate
    passes to a thread of its own and back, some 0.1 ms.
    """

    def __init__(
        self,
        *,
        sample_concurrency: int,
        environment_concurrency: int | None = None,
        environment_policy: Literal["fcfs", "caas"] = "caas",
        band_s: float = 30.0,
        bucket_s: float = 1.0,
        workers: Iterable[str] | Mapping[str, float] | None = None,
        load_bound: float | None = None,
        slack: int | None = None,
        router: RouterName | None = None,
        resident_concurrency: int | None = None,
        admission_policy: Literal["submission", "longest-expected-first"] = "submission",
        history: Given | None = None,
        record: str | os.PathLike[str] | None = None,
        service: str | Lookup | None = None,
        batch: str | None = None,
        ca: str | Path | None = None,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
    ) -> None:
        """
        The options are those of `coresched.Batch`. With `service` (as `target` of `coresched.connect`) the
        batch is the one of the name `batch` there, shared with other processes, and `workers`,
        `load_bound`, `slack` and `router` are the service's; `ca`, `certificate` and `key` are as in
        `coresched.connect`, the token is that of CORESCHED_TOKEN.

        Raises TypeError or ValueError for a bad option, SessionLostError if the service does not answer.
        """
        opened: Batch | RemoteBatch
        if service is None:
            for name, given in (("batch", batch), ("ca", ca), ("certificate", certificate), ("key", key)):
                if given is not None:
                    raise InputError(f"{name} is for a batch at a service; give service, or leave it out")
            opened = Batch(
                sample_concurrency=sample_concurrency,
                environment_concurrency=environment_concurrency,
                environment_policy=environment_policy,
                band_s=band_s,
                bucket_s=bucket_s,
                workers=workers,
                load_bound=1.25 if load_bound is None else load_bound,
                slack=0 if slack is None else slack,
                router="lbch" if router is None else router,
                resident_concurrency=resident_concurrency,
                admission_policy=admission_policy,
                history=history,
                record=record,
            )
        else:
            if batch is None:
                raise InputError("batch must be given with service: the batch's name there; add it")
            for name, routing in (
                ("workers", workers),
                ("load_bound", load_bound),
                ("slack", slack),
                ("router", router),
            ):
                if routing is not None:
                    raise InputError(
                        f"{name} is a matter of the service (`coresched serve --worker`); leave it out"
                    )
            opened = connect(
                service,
                batch=batch,
                sample_concurrency=sample_concurrency,
                environment_concurrency=environment_concurrency,
                environment_policy=environment_policy,
                band_s=band_s,
                bucket_s=bucket_s,
                resident_concurrency=resident_concurrency,
                admission_policy=admission_policy,
                history=history,
                record=record,
                ca=ca,
                certificate=certificate,
                key=key,
            )
        self.sample_concurrency = sample_concurrency
        """C_S, so that a harness can compare its own limit with it."""
        self.environment_concurrency = environment_concurrency
        """C_E; None is no cap."""
        self.resident_concurrency = resident_concurrency
        """C_R; None is no cap."""
        self._batch = opened
        self._home = Home()
        try:
            self._home.call(opened.__aenter__()).result()
        except BaseException:
            self._home.end()
            raise

    def sample(self, id: str) -> Sample:
        """A sample of the batch, to be entered once; its id is its trajectory label.

        Raises TypeError or ValueError for an id that is no label or was used in this batch before. At a
        service's batch, entering it raises SampleEndedError if it ended before, SampleTakenError if another
        process has it.
        """
        self._home.check()
        return Sample(self._home, self._batch.sample(id))

    def report(self) -> BatchReport:
        """Times of every sample and of the whole; of a service's batch, what was fetched when it was left."""
        return self._batch.report()

    @property
    def progress(self) -> BatchSummary | None:
        """Where the whole batch stands; None before a service has told."""
        return self._batch.progress

    def close(self) -> None:
        """Leave the batch: what has not ended is withdrawn, and whoever waits gets a BatchClosedError.

        May be called again, and from any thread. Raises ServiceError if the service was lost,
        RecordingError if something was not recorded.
        """
        try:
            leaving = self._home.call(self._batch.__aexit__(None, None, None))
        except (BatchClosedError, RuntimeError):  # closed before, or a forked child's copy
            return
        try:
            leaving.result()
        finally:
            self._home.end()

    def __enter__(self) -> Gate:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
