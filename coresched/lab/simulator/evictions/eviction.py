"""What an eviction policy of the simulator is, and what it may know."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from coresched.lab.simulator.model import StepTimes, WorkerModel
from coresched.lab.simulator.workload import Workload


@dataclass(frozen=True)
class Cache:
    """What the policy of one worker is made for. Samples and turns are given by their index."""

    workload: Workload
    """The whole batch: for oracles. What others may read of it are the ``tools`` that replies have called."""
    times: StepTimes
    slot_tokens: float
    """What the recurrent state of an idle entry takes, in KV tokens."""

    @classmethod
    def of(cls, workload: Workload, model: WorkerModel) -> "Cache":
        return cls(workload, model.times, model.request_state_tokens / model.slots_per_request)

    @property
    def tools(self) -> Sequence[int]:
        """Which kind of tool the reply of each turn calls; NO_KIND where it calls none."""
        return self.workload.environment_kind

    def prefill_s(self, tokens: int) -> float:
        """What a hit of ``tokens`` spares: their prefill, without the fixed costs of a batch."""
        times = self.times
        return tokens * (times.prefill_token_s + times.prefill_attended_token_s * tokens / 2)


class Eviction(ABC):
    """Chooses the entries that one worker gives up. An entry is a sample; times are virtual seconds.

    A sample's turn is queued, then started, and at its end the sample's entry rests until the next turn or
    until it is evicted.
    """

    @abstractmethod
    def victim(self, idle: Sequence[int], now_s: float) -> int:
        """The one of ``idle``, least recently used first and not empty, that is evicted now."""

    def queued(self, sample: int, now_s: float) -> None:  # noqa: B027  # most need not all of this news
        """A turn of the sample waits from now on."""

    def started(self, sample: int, now_s: float) -> None:  # noqa: B027
        """The turn that waited was admitted: the sample's entry, if there is one, is in use."""

    def touched(self, sample: int, now_s: float) -> None:  # noqa: B027
        """A prefix query has made the resting entry the most recently used one."""

    def rested(self, sample: int, turn: int, tokens: int, now_s: float) -> None:  # noqa: B027
        """The turn has ended and left an entry of ``tokens``."""
