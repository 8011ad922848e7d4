"""A batch simulated at many points, and the best cell of a grid of them."""

from collections.abc import Sequence
from typing import Final

from coresched.errors import InputError
from coresched.lab.plans import Point
from coresched.lab.simulator.engine.cluster import Cluster
from coresched.lab.simulator.memory import require_fit, split_memory
from coresched.lab.simulator.model import WorkerModel
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.workload import build_workload
from coresched.trajectory.schema import Trajectory

ALL_EVENTS: Final = 1 << 62

RATIO_STEP: Final = 2**0.5
RATIOS_EACH_SIDE: Final = 2
CONCURRENCY_STEP: Final = 1.08
CONCURRENCIES_EACH_SIDE: Final = 3


class SimulatedBatch:
    """One batch on one worker, first come first served; every point is simulated once."""

    def __init__(self, trajectories: Sequence[Trajectory], model: WorkerModel) -> None:
        self.model = model
        self.workload = build_workload(trajectories, page_tokens=model.page_tokens)
        self.found: dict[Point, float | None] = {}

    def makespan_s(self, point: Point) -> float | None:
        """None where a pool could not hold the longest trajectory."""
        if point not in self.found:
            self.found[point] = self._simulate(point)
        return self.found[point]

    def _simulate(self, point: Point) -> float | None:
        settings = RunSettings(
            name="cell",
            workers=1,
            sample_concurrency=point.concurrency,
            environment_concurrency=None,
            state_ratio=point.ratio,
            label_capacity=1,
            routing="round-robin",
        )
        try:
            memory = split_memory(self.model, point.ratio)
            require_fit(self.workload, memory)
        except InputError:
            return None
        cluster = Cluster(self.workload, settings, self.model, memory)
        cluster.advance(ALL_EVENTS)
        return cluster.outcome().completed_s[-1]


def best_cell(batch: SimulatedBatch, centre: Point) -> tuple[Point, float]:
    """The cell with the least makespan, and that makespan in seconds.

    A grid of 5 ratios by 7 concurrencies around the centre; while its best cell lies on an edge, it grows
    there, until the pools no longer hold the workload or the concurrency is 1 or the whole batch. Then the
    same around that best cell, with a quarter of the steps.
    Raises ValueError when no cell can run.
    """
    coarse, _ = _best_of(batch, centre, RATIO_STEP, CONCURRENCY_STEP)
    return _best_of(batch, coarse, RATIO_STEP**0.25, CONCURRENCY_STEP**0.25)


def _best_of(
    batch: SimulatedBatch, centre: Point, ratio_step: float, concurrency_step: float
) -> tuple[Point, float]:
    samples = batch.workload.samples
    ratios = [centre.ratio * ratio_step**power for power in range(-RATIOS_EACH_SIDE, RATIOS_EACH_SIDE + 1)]
    concurrencies = [min(centre.concurrency, samples)]
    for _ in range(CONCURRENCIES_EACH_SIDE):
        for up in (False, True):
            _extend(concurrencies, concurrency_step, up, samples)
    while True:
        cells = {
            Point(ratio, concurrency): makespan
            for ratio in ratios
            for concurrency in concurrencies
            if (makespan := batch.makespan_s(Point(ratio, concurrency))) is not None
        }
        if not cells:
            raise ValueError(f"no cell around {centre} can run the batch")
        # Of equal cells one inside: an edge counts only where it is better.
        best = min(
            cells,
            key=lambda cell: (
                cells[cell],
                cell.ratio in (ratios[0], ratios[-1]),
                cell.concurrency in (concurrencies[0], concurrencies[-1]),
            ),
        )
        grown = False
        for up in (False, True):
            place = -1 if up else 0
            beyond = ratios[place] * (ratio_step if up else 1 / ratio_step)
            if best.ratio == ratios[place] and batch.makespan_s(Point(beyond, best.concurrency)) is not None:
                ratios.insert(len(ratios) if up else 0, beyond)
                grown = True
            elif best.concurrency == concurrencies[place]:
                grown |= _extend(concurrencies, concurrency_step, up, samples)
        if not grown:
            return best, cells[best]


def _extend(concurrencies: list[int], step: float, up: bool, most: int) -> bool:
    """Add the next concurrency above or below, at least 1 away; False at the limits 1 and ``most``."""
    if up:
        last = concurrencies[-1]
        following = min(most, max(last + 1, round(last * step)))
        if following > last:
            concurrencies.append(following)
        return following > last
    first = concurrencies[0]
    following = max(1, min(first - 1, round(first / step)))
    if following < first:
        concurrencies.insert(0, following)
    return following < first
