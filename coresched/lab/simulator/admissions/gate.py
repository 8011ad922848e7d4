"""What holds back turns of samples that were admitted, where that is decided by memory."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from coresched.lab.simulator.workload import Workload


@dataclass(frozen=True)
class Workers:
    """What a gate is configured with; of the workload it may know who shares a prefix, which caches tell."""

    workload: Workload
    workers: int
    kv_tokens: int
    """The KV pool of each worker."""


class TurnGate(ABC):
    """Stands between the samples of one run and its router. Times are virtual seconds."""

    interval_s: ClassVar[float]
    """Between two calls of `check`, the first of which comes as long after the beginning."""

    @abstractmethod
    def ask(self, sample: int, prompt_tokens: int, now_s: float) -> bool:
        """Whether the sample's next turn may be sent now; if not, it is held until a `check` names it."""

    @abstractmethod
    def placed(self, sample: int, worker: int) -> None:
        """The turn reached that worker."""

    @abstractmethod
    def ended(self, sample: int, context_tokens: int) -> None:
        """The turn ended; prompt and reply are that long."""

    @abstractmethod
    def finished(self, sample: int) -> None:
        """The sample's trajectory ended."""

    @abstractmethod
    def check(self, now_s: float) -> Sequence[int]:
        """The samples whose turns were held and are sent now."""
