"""What a client asks of the service, checked before anything is sent."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from coresched.batch.coordinator import Coordinator
from coresched.batch.history import Given, History, history_of
from coresched.client.credentials import check_connection
from coresched.client.lookup import Lookup
from coresched.core.checks import check_label, check_positive
from coresched.errors import InputError
from coresched.recording.events import BatchOptions
from coresched.recording.harness import BatchRecord
from coresched.v1 import batches_pb2 as pb

_ADMISSION = {
    "submission": pb.ADMISSION_POLICY_SUBMISSION,
    "longest-expected-first": pb.ADMISSION_POLICY_LONGEST_EXPECTED_FIRST,
}
_POLICIES = {"caas": pb.ENVIRONMENT_POLICY_CAAS, "fcfs": pb.ENVIRONMENT_POLICY_FCFS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where the service is, and as whom to connect."""

    target: str
    token: str | None = None
    ca: str | Path | bytes | None = None
    certificate: str | Path | None = None
    key: str | Path | None = None

    def __str__(self) -> str:
        return self.target

    @property
    def tls(self) -> bool:
        return self.ca is not None or self.certificate is not None

    def check(self) -> None:
        """Raises what `coresched.client.credentials.channel` would."""
        check_connection(self.target, self.token, self.ca, self.certificate, self.key)


def tls_of(service: Connection | Lookup) -> bool | None:
    """Whether the client was told to use TLS; None where it was not told how to connect."""
    return service.tls if isinstance(service, Connection) else None


def service_of(
    target: str | Lookup,
    token: str | None,
    ca: str | Path | None,
    certificate: str | Path | None,
    key: str | Path | None,
) -> Connection | Lookup:
    """Where to connect, as it was given.

    Raises what `Connection.check` does, and InputError for what is given beside a lookup.
    """
    if isinstance(target, Lookup):
        for name, given in (("token", token), ("ca", ca), ("certificate", certificate), ("key", key)):
            if given is not None:
                raise InputError(f"{name} must be left out, since {target} says how to connect to it")
        return target
    connection = Connection(target=target, token=token, ca=ca, certificate=certificate, key=key)
    connection.check()
    return connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The batch to open or join, and how to be in it."""

    batch: str
    options: pb.BatchOptions
    grace_s: float
    keep_open: bool
    history: History | None = None
    """What this process tells of the samples that it submits."""


def refuse_workers(workers: object, load_bound: object, slack: object, router: object) -> None:
    """Raises TypeError for an option of `coresched.Batch` that a service's batch has from its service."""
    for name, given, flag in (
        ("workers", workers, "--worker NAME"),
        ("load_bound", load_bound, "--load-bound A"),
        ("slack", slack, "--slack N"),
        ("router", router, "--router NAME"),
    ):
        if given is not None:
            more = " or the rpc RegisterWorker" if name == "workers" else ""
            raise TypeError(
                f"{name} must be given to the service, by `coresched serve {flag}`{more}, not to connect; "
                "leave it out"
            )


def record_of(record: str | os.PathLike[str] | None, asked: Asked) -> BatchRecord:
    """Where this process records what it does in the batch. Raises TypeError or InputError for the folder."""
    options = asked.options
    return BatchRecord(
        record,
        BatchOptions(
            options.sample_concurrency,
            options.environment_concurrency if options.HasField("environment_concurrency") else None,
            "fcfs" if options.environment_policy == pb.ENVIRONMENT_POLICY_FCFS else "caas",
            options.band_s,
            options.bucket_s,
        ),
    )


def checked(
    batch: str,
    sample_concurrency: int,
    environment_concurrency: int | None,
    environment_policy: Literal["fcfs", "caas"],
    band_s: float,
    bucket_s: float,
    grace_s: float,
    keep_open: bool,
    resident_concurrency: int | None,
    admission_policy: Literal["submission", "longest-expected-first"],
    history: Given | None,
) -> Asked:
    """The options, or the TypeError or ValueError that an embedded batch would raise for them."""
    name = check_label(batch, "batch")
    Coordinator(
        sample_concurrency,
        environment_concurrency,
        environment_policy=environment_policy,
        band_s=band_s,
        bucket_s=bucket_s,
        resident_concurrency=resident_concurrency,
        admission_policy=admission_policy,
    )
    if not isinstance(keep_open, bool):
        raise TypeError(
            f"keep_open must be True or False, got {keep_open!r} of type {type(keep_open).__name__}"
        )
    grace = check_positive(grace_s, "grace_s")
    if not 1 <= grace <= 3600:
        raise ValueError(f"grace_s must be from 1 to 3600 seconds, got {grace_s!r}")
    options = pb.BatchOptions(
        sample_concurrency=sample_concurrency,
        environment_concurrency=environment_concurrency,
        environment_policy=_POLICIES[environment_policy],
        band_s=band_s,
        bucket_s=bucket_s,
        resident_concurrency=resident_concurrency,
        admission_policy=_ADMISSION[admission_policy],
    )
    return Asked(
        batch=name,
        options=options,
        grace_s=grace,
        keep_open=keep_open,
        history=history_of(admission_policy, history),
    )
