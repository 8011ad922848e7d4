"""The shortest environment job first, as long as jobs like it were so far."""

from bisect import insort
from statistics import median

from coresched.lab.simulator.environments.order import EnvironmentOrder, Jobs


class ShortestExpectedJobFirst(EnvironmentOrder):
    """SJF by a median of the jobs that have ended in this run.

    Of the nearest that there are any of: the trajectory's own of the same kind, the trajectory's own, all of
    the same kind, all. Before any has ended, 0. The median per tool is how SAGA (arXiv:2605.00528) predicts,
    to retain caches by it.
    """

    def __init__(self, jobs: Jobs) -> None:
        self._kind = jobs.workload.environment_kind
        self._ended: dict[tuple[int | None, int | None], list[float]] = {}

    def key(self, sample: int, turn: int) -> float:
        for like in self._likes(sample, turn):
            if like in self._ended:
                return median(self._ended[like])
        return 0.0

    def ended(self, sample: int, turn: int, duration_s: float) -> None:
        for like in self._likes(sample, turn):
            insort(self._ended.setdefault(like, []), duration_s)

    def _likes(self, sample: int, turn: int) -> tuple[tuple[int | None, int | None], ...]:
        kind = self._kind[turn]
        return (sample, kind), (sample, None), (None, kind), (None, None)
