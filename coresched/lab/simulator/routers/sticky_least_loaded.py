"""A trajectory's first turn to the worker with the fewest trajectories, and there it stays."""

from collections.abc import Sequence

from coresched.lab.simulator.routers.hashing import stable_hash
from coresched.lab.simulator.routers.router import Fleet, Router


class StickyLeastLoaded(Router):
    """vllm-router's sticky_least_loaded, the default of prime-rl.

    Counted are the trajectories placed on a worker that have not ended (finish_session); the highest hash of
    label and worker decides a tie. Left out: the expiry of sessions that are unused for two hours.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._labels = fleet.labels
        self._trajectories = [0] * fleet.workers
        self._worker_of: dict[int, int] = {}

    def place(self, sample: int, prompt_tokens: int, in_flight: Sequence[int], now_s: float) -> int:
        if sample not in self._worker_of:
            fewest = min(self._trajectories)
            least = [worker for worker, count in enumerate(self._trajectories) if count == fewest]
            label = self._labels[sample]
            worker = max(least, key=lambda worker: stable_hash(f"{label}:{worker}"))
            self._worker_of[sample] = worker
            self._trajectories[worker] += 1
        return self._worker_of[sample]

    def finished(self, sample: int) -> None:
        self._trajectories[self._worker_of.pop(sample)] -= 1
