"""Planned on one half of a batch, run on the other: each estimator's makespan against a grid's best."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import msgspec

from bench.paper.grid import SimulatedBatch, best_cell
from coresched.capacity.profile import profile_of
from coresched.lab.plans import Point, by_kappa, by_paper, by_peak, by_requests
from coresched.lab.simulator.model import WorkerModel, load_worker_model
from coresched.trajectory.schema import Trajectory

MEMORY_SHARE: Final = 0.5
"""Half the memory for half a batch: concurrency binds as it would for the whole."""

TARGET: Final = 0.05
"""How much slower than the best cell a plan may be."""

ESTIMATORS: Final = {"peak": by_peak, "kappa": by_kappa, "requests": by_requests, "paper": by_paper}
TOLD: Final = "peak, told"
"""The peak estimate planned on the simulated half itself: what knowing the batch would have given."""


@dataclass(frozen=True)
class Trial:
    """One estimator on one seed of one workload; ``ratio_to_best`` is its makespan over the best cell's."""

    workload: str
    seed: int
    samples: int
    estimator: str
    point: Point
    makespan_s: float | None
    best: Point
    best_s: float

    @property
    def ratio_to_best(self) -> float:
        """Infinite where the planned pools cannot hold the longest trajectory."""
        return float("inf") if self.makespan_s is None else self.makespan_s / self.best_s

    @property
    def on_target(self) -> bool:
        return self.ratio_to_best <= 1 + TARGET


@dataclass(frozen=True)
class Summary:
    """One estimator on one workload: medians over the seeds, the worst, and how many meet the target."""

    workload: str
    estimator: str
    samples: int
    median_ratio: float
    worst_ratio: float
    concurrency: float
    best_concurrency: float
    state_ratio: float
    seeds: int
    on_target: int


def half_memory() -> WorkerModel:
    """The shipped worker with MEMORY_SHARE of its cache memory."""
    model = load_worker_model()
    return msgspec.structs.replace(model, pool_tokens=round(model.pool_tokens * MEMORY_SHARE))


def trials(
    workload: str,
    seed: int,
    trajectories: Sequence[Trajectory],
    model: WorkerModel,
    progress: Callable[[str], None],
) -> list[Trial]:
    """Every estimator planned on every other trajectory and simulated on the rest, in their given order."""
    planning, running = trajectories[::2], trajectories[1::2]
    profile = profile_of(planning)
    progress("planning")
    points = {name: estimator(profile, model) for name, estimator in ESTIMATORS.items()}
    points[TOLD] = by_peak(profile_of(running), model)
    progress("simulating")
    batch = SimulatedBatch(running, model)
    best, best_s = best_cell(batch, points["peak"])
    return [
        Trial(workload, seed, len(running), name, point, batch.makespan_s(point), best, best_s)
        for name, point in points.items()
    ]


def summarised(done: Sequence[Trial]) -> Summary:
    """The trials of one workload and one estimator as one line."""
    ratios = [trial.ratio_to_best for trial in done]
    return Summary(
        workload=done[0].workload,
        estimator=done[0].estimator,
        samples=done[0].samples,
        median_ratio=median(ratios),
        worst_ratio=max(ratios),
        concurrency=median(trial.point.concurrency for trial in done),
        best_concurrency=median(trial.best.concurrency for trial in done),
        state_ratio=median(trial.point.ratio for trial in done),
        seeds=len(done),
        on_target=sum(trial.on_target for trial in done),
    )


def reason(missed: Trial, told: Trial) -> str:
    """Which way a plan of the peak estimator missed, and whether knowing the batch would have helped.

    Told the batch, only the margin and the allowance for other submission orders are left to blame.
    """
    side = "above" if missed.point.concurrency > missed.best.concurrency else "below"
    blame = "the halves differ" if told.on_target else "margin and allowance for other orders"
    return (
        f"peak, {missed.workload}, seed {missed.seed}: {missed.ratio_to_best:.3f}x at C = "
        f"{missed.point.concurrency}, {side} the best {missed.best.concurrency};\n"
        f"  told the half, C = {told.point.concurrency} and {told.ratio_to_best:.3f}x: {blame}"
    )
