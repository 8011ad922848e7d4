"""Where a harness connects to a service's batch. The first call loads gRPC, not `import coresched`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from coresched.batch.history import Given
from coresched.client.lookup import Lookup

if TYPE_CHECKING:
    from coresched.client.remote import async_batch, blocking_batch


def connect(
    target: str | Lookup,
    *,
    batch: str,
    sample_concurrency: int,
    environment_concurrency: int | None = None,
    environment_policy: Literal["fcfs", "caas"] = "caas",
    band_s: float = 30.0,
    bucket_s: float = 1.0,
    grace_s: float = 30.0,
    keep_open: bool = False,
    token: str | None = None,
    ca: str | Path | None = None,
    certificate: str | Path | None = None,
    key: str | Path | None = None,
    record: str | os.PathLike[str] | None = None,
    workers: None = None,
    load_bound: None = None,
    slack: None = None,
    router: None = None,
    resident_concurrency: int | None = None,
    admission_policy: Literal["submission", "longest-expected-first"] = "submission",
    history: Given | None = None,
) -> async_batch.RemoteBatch:
    """The batch of that name at the service, opened if it is not there: `async with connect(...) as batch`.

    `target` is HOST:PORT or unix:PATH of `coresched serve`, or a `coresched.client.lookup.Lookup` that finds
    it and knows how to connect. The options of the batch are those of `coresched.Batch`, and count for all
    processes in it: whoever joins asks for the same. Workers and their routing are the service's: `workers`,
    `load_bound`, `slack` and `router` are refused with a TypeError. A process that was silent for `grace_s`
    (1 to 3600 seconds) has left, and what it held goes to others; a service that does not answer for so long
    is given up. With `keep_open` the batch stays when its last process leaves, until it is closed. `token`,
    `ca`, `certificate` and `key` are as in `coresched.client.credentials`.
    `history` is this process's own: what it submits is admitted by it, in whatever process.
    `record` is a folder for the times of this process, by its own clock, as with `coresched.Batch`.

    Raises TypeError or ValueError for a bad option or target; entering it raises ValueError if the service
    refuses one or the batch has others, SessionLostError if the service does not answer. A service that has
    not answered for 2.5 s is noted by a warning of the logger "coresched.client".
    """
    from coresched.client.remote.async_batch import RemoteBatch
    from coresched.client.remote.options import checked, record_of, refuse_workers, service_of

    refuse_workers(workers, load_bound, slack, router)
    asked = checked(
        batch,
        sample_concurrency,
        environment_concurrency,
        environment_policy,
        band_s,
        bucket_s,
        grace_s,
        keep_open,
        resident_concurrency,
        admission_policy,
        history,
    )
    service = service_of(target, token, ca, certificate, key)
    return RemoteBatch(service, asked, record_of(record, asked))


def connect_blocking(
    target: str | Lookup,
    *,
    batch: str,
    sample_concurrency: int,
    environment_concurrency: int | None = None,
    environment_policy: Literal["fcfs", "caas"] = "caas",
    band_s: float = 30.0,
    bucket_s: float = 1.0,
    grace_s: float = 30.0,
    keep_open: bool = False,
    token: str | None = None,
    ca: str | Path | None = None,
    certificate: str | Path | None = None,
    key: str | Path | None = None,
    record: str | os.PathLike[str] | None = None,
    workers: None = None,
    load_bound: None = None,
    slack: None = None,
    router: None = None,
    resident_concurrency: int | None = None,
    admission_policy: Literal["submission", "longest-expected-first"] = "submission",
    history: Given | None = None,
) -> blocking_batch.RemoteBatch:
    """The same as `coresched.connect`, for threads: `with connect(...) as batch`."""
    from coresched.client.remote.blocking_batch import RemoteBatch
    from coresched.client.remote.options import checked, record_of, refuse_workers, service_of

    refuse_workers(workers, load_bound, slack, router)
    asked = checked(
        batch,
        sample_concurrency,
        environment_concurrency,
        environment_policy,
        band_s,
        bucket_s,
        grace_s,
        keep_open,
        resident_concurrency,
        admission_policy,
        history,
    )
    service = service_of(target, token, ca, certificate, key)
    return RemoteBatch(service, asked, record_of(record, asked))
