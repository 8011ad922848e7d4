"""One batch on one engine as a job for a process: JSON in, JSON out."""

from typing import Any

import msgspec

from coresched.errors import InputError
from coresched.trajectory.schema import Trajectory
from coresched_simdevice.virtual.batch import BatchResult, BatchSettings, run_batch
from coresched_simdevice.virtual.engine import VirtualEngine


class Job(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What `python -m coresched_simdevice.virtual` reads from standard input.

    The simulated device is described in the environment (CORESCHED_SIMDEVICE and so on).
    """

    server_args: dict[str, Any]
    """Fields of SGLang's ServerArgs; those that the device needs are filled in."""
    trajectories: tuple[Trajectory, ...]
    settings: BatchSettings
    charge_scheduler: bool = False


def read_job(text: bytes) -> Job:
    """Raises InputError naming the field."""
    try:
        return msgspec.json.decode(text, type=Job)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"the job on standard input cannot be read: {error}") from None


def run_job(job: Job) -> BatchResult:
    """Boot an engine and run the batch on it. Raises InputError as these do."""
    engine = VirtualEngine(job.server_args, charge_scheduler=job.charge_scheduler)
    try:
        return run_batch(engine, job.trajectories, job.settings)
    finally:
        engine.close()
