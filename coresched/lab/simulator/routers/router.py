"""What a router of the simulator is: it knows what a gateway can know, and nothing of the trace."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from coresched.core import LoadBoundedRouter
from coresched.lab.simulator.model import StepTimes


def worker_names(workers: int) -> list[str]:
    """By which rings and tables know the workers, in their order."""
    return [f"worker-{index}" for index in range(workers)]


@dataclass(frozen=True)
class Fleet:
    """What a gateway is configured with, and the label of each sample."""

    labels: Sequence[str]
    workers: int
    load_bound: float
    """alpha, for the routers that bound a worker's load by the mean."""
    seed: int
    times: StepTimes
    """Of a worker: what a gateway expects a prefill to take, where its rule asks for that."""

    def homes(self) -> list[int]:
        """Each sample's worker on the hash ring of LBCH."""
        names = worker_names(self.workers)
        ring = LoadBoundedRouter(names)
        index_of = {name: index for index, name in enumerate(names)}
        return [index_of[ring.home(label)] for label in self.labels]

    def prefill_s(self, new_tokens: int, prompt_tokens: int) -> float:
        """What a worker needs to prefill one request alone, of whose prompt only the last tokens are new."""
        times = self.times
        return (
            times.prefill_batch_s
            + times.prefill_request_s
            + times.prefill_token_s * new_tokens
            + times.prefill_attended_token_s * new_tokens * prompt_tokens
        )


class Router(ABC):
    """Places the turns of one run. Samples and workers are given by their index, times in virtual seconds."""

    @abstractmethod
    def place(self, sample: int, prompt_tokens: int, in_flight: Sequence[int], now_s: float) -> int:
        """The worker for a sample's next turn. ``in_flight`` has each worker's requests, this one not yet."""

    def started(self, sample: int, worker: int, now_s: float) -> None:  # noqa: B027  # most need no such news
        """The first token of the sample's turn came back at ``now_s``: seen where answers are streamed.

        Workers of a lockstep run tell it when the turn ends.
        """

    def ended(self, sample: int, worker: int, now_s: float) -> None:  # noqa: B027
        """The sample's turn has ended; ``place`` has it no longer in flight."""

    def finished(self, sample: int) -> None:  # noqa: B027
        """The sample's trajectory has ended, as a harness can tell its gateway."""
