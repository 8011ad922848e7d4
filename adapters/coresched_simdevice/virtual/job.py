"""One batch on one engine as a job for a process."""

import os
from contextlib import nullcontext
from typing import Any

import msgspec

from coresched.errors import InputError
from coresched.trajectory.schema import Trajectory
from coresched_simdevice.virtual.batch import BatchResult, BatchSettings, run_batch
from coresched_simdevice.virtual.engine import VirtualEngine
from coresched_simdevice.virtual.recording import recorded_passes


class Job(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A line of what `python -m coresched_simdevice.virtual` reads."""

    server_args: dict[str, Any]
    """Fields of SGLang's ServerArgs; those that the device needs are filled in."""
    trajectories: tuple[Trajectory, ...]
    settings: BatchSettings
    environment: dict[str, str] = {}
    """Variables that are read at boot, such as CORESCHED_LABEL_CAPACITY; not the simulated device's."""
    charge_scheduler: bool = False
    passes: str | None = None
    """A file to write each scheduling pass to; of our policies only. See `passes.Pass`."""


def read_job(text: bytes) -> Job:
    """Raises InputError naming the field."""
    try:
        return msgspec.json.decode(text, type=Job)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"a job cannot be read: {error}") from None


def run_job(job: Job) -> BatchResult:
    """Boot an engine in this process and run the batch on it. Raises InputError as these do."""
    os.environ.update(job.environment)
    engine = VirtualEngine(job.server_args, charge_scheduler=job.charge_scheduler)
    try:
        with nullcontext() if job.passes is None else recorded_passes(engine, job.passes):
            return run_batch(engine, job.trajectories, job.settings)
    finally:
        engine.close()
