"""What the driver of a lockstep run asks of its workers. An adapter implements it for an engine."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from coresched.lab.simulator.model import WorkerModel
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.workload import Workload
from coresched.trajectory.schema import Trajectory


@dataclass(frozen=True)
class FinishedTurn:
    """A turn that a worker has served to its end. Times are virtual seconds."""

    sample: int
    first_token_s: float
    finished_s: float
    cached_tokens: int
    """Prompt tokens found in the cache when it was first admitted into a batch."""
    queue_s: float
    """Time in the worker's waiting queue."""
    retractions: int = 0
    """How often the worker took it out of the running batch for want of memory."""


@dataclass(frozen=True)
class WorkerCounts:
    """What a worker did in the whole run."""

    busy_s: float
    """Virtual seconds of its forwards."""
    prefilled_tokens: int
    """Prompt tokens computed, those computed again after a retraction included."""


class SteppedWorkers(Protocol):
    """W workers, each with a clock that stands still unless `advance` moves it."""

    def next_event_s(self, worker: int) -> float:
        """No turn that the worker has now finishes before this time; inf where it has none."""

    def enqueue(self, worker: int, sample: int, turn: int, t: float) -> None:
        """Let a sample's turn reach the worker at ``t``, to which all its past has been advanced."""

    def advance(self, workers: Sequence[int], until: float) -> list[list[FinishedTurn]]:
        """Move the clocks of ``workers`` to ``until``, at once where possible.

        What happens at ``until`` itself has then happened. Returns, for each, what has finished, in the order
        of time.
        """

    def counts(self) -> list[WorkerCounts]:
        """Of each worker, once the run is done."""


class Deployment(Protocol):
    """Where the workers of lockstep runs come from."""

    @property
    def model(self) -> WorkerModel:
        """Memory and step times of one worker: what a run is planned with."""

    @property
    def bounds_model(self) -> WorkerModel:
        """The same for its lower bounds: no worker is faster, or runs more requests at once."""

    def workers(
        self, batch: Sequence[Trajectory], workload: Workload, settings: RunSettings
    ) -> AbstractContextManager[SteppedWorkers]:
        """Fresh workers for one run of ``batch``, in the order of ``workload``; they end with the context.

        Raises InputError for a turn that no worker has room for.
        """
