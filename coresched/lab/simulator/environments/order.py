"""What an order of the environment queue is: a key for each job, which it has until it gets a slot."""

import heapq
from abc import ABC, abstractmethod
from dataclasses import dataclass

from coresched.lab.simulator.model import StepTimes
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.workload import Workload


@dataclass(frozen=True)
class Jobs:
    """The batch whose environment jobs are ordered.

    An order reads the kind of a job, which a harness knows when it asks for a slot. What else it reads of the
    workload, durations and what is still to come, no harness knows: such an order is called an oracle.
    """

    workload: Workload
    settings: RunSettings
    times: StepTimes


class EnvironmentOrder(ABC):
    """Ranks the jobs of one run. A job is named by its sample, and the turn that led to it."""

    @abstractmethod
    def key(self, sample: int, turn: int) -> float:
        """Of a job that asks for a slot; the lowest goes first, equal ones as they asked."""

    def ended(self, sample: int, turn: int, duration_s: float) -> None:  # noqa: B027  # most learn nothing
        """The job ran for that long."""


class EnvironmentQueue:
    """The jobs that wait, in an order's order."""

    def __init__(self, order: EnvironmentOrder) -> None:
        self._order = order
        self._heap: list[tuple[float, int, int]] = []
        self._asked = 0

    def ask(self, sample: int, turn: int) -> None:
        """Let the sample's job wait."""
        self._asked += 1
        heapq.heappush(self._heap, (self._order.key(sample, turn), self._asked, sample))

    def take(self) -> int:
        """The sample whose job gets the next slot. Raises IndexError when none waits."""
        return heapq.heappop(self._heap)[2]

    def ended(self, sample: int, turn: int, duration_s: float) -> None:
        self._order.ended(sample, turn, duration_s)
