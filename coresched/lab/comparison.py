"""Running a ladder of configurations on one batch, and the rows people compare."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from coresched.lab.ladder import Rung
from coresched.lab.simulator.lockstep.run import simulate_in_lockstep
from coresched.lab.simulator.lockstep.workers import Deployment
from coresched.lab.simulator.model import WorkerModel
from coresched.lab.simulator.run import SimulatedRun, simulate
from coresched.lab.units import TimeUnit, count_text, percent_text, saved_text
from coresched.trajectory.schema import Trajectory

WORTH_SAYING = 0.01
"""Differences below 1 % are within what another order of the same batch does."""


@dataclass(frozen=True)
class Comparison:
    """Finished runs of one batch; the first is the reference.

    ``unbalanced`` is why there are no two pools to balance, and so no state ratio; None where there are.
    """

    title: str
    workload: str
    model: WorkerModel
    rungs: list[Rung]
    runs: list[SimulatedRun]
    unbalanced: str | None = None

    @property
    def verdict(self) -> str:
        """One sentence: the last run against the first, and the shortest where that is another."""
        unit = self.unit
        first, last = self.runs[0], self.runs[-1]
        if first is last:
            return f"{first.settings.name} {unit.text(first.metrics.makespan_s)} {unit.name}."
        best = min(self.runs, key=lambda run: run.metrics.makespan_s)
        text = (
            f"{first.settings.name} {unit.text(first.metrics.makespan_s)} {unit.name}, {last.settings.name} "
            f"{unit.text(last.metrics.makespan_s)} {unit.name}: "
            f"x{first.metrics.makespan_s / last.metrics.makespan_s:.2f}"
        )
        if best.metrics.makespan_s < last.metrics.makespan_s * (1 - WORTH_SAYING):
            text += (
                f"; the shortest is {best.settings.name}, {unit.text(best.metrics.makespan_s)} "
                f"{unit.name}, so what "
                "the later runs add does not help this batch"
            )
        return f"{text}."

    @property
    def unit(self) -> TimeUnit:
        return TimeUnit(max(run.metrics.makespan_s for run in self.runs))


def compare(
    trajectories: Sequence[Trajectory],
    model: WorkerModel,
    rungs: Sequence[Rung],
    *,
    title: str,
    workload: str,
    absent_environment_s: float | None = None,
    progress: Callable[[str, int], None] | None = None,
    deployment: Deployment | None = None,
    unbalanced: str | None = None,
) -> Comparison:
    """Simulate every rung in turn, on workers of ``model`` or on those of ``deployment``.

    ``progress(run name, completed samples)`` is called now and then.
    """
    runs = []
    for rung in rungs:
        name = rung.settings.name

        def report(completed: int, name: str = name) -> None:
            if progress is not None:
                progress(name, completed)

        report(0)
        settings, assumed = rung.settings, absent_environment_s
        if deployment is None:
            run = simulate(trajectories, settings, model, absent_environment_s=assumed, progress=report)
        else:
            run = simulate_in_lockstep(
                trajectories, settings, deployment, absent_environment_s=assumed, progress=report
            )
        runs.append(run)
        report(len(trajectories))
    return Comparison(title, workload, model, list(rungs), runs, unbalanced)


COLUMNS = ("run", "makespan", "gain", "cache reuse", "new prefill", "L5", "imbalance", "x bound")


def table_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """One row of text a run, in the order of COLUMNS; times in ``comparison.unit``."""
    unit, reference = comparison.unit, comparison.runs[0].metrics.makespan_s
    return [
        (
            run.settings.name,
            unit.text(run.metrics.makespan_s),
            saved_text(run.metrics.makespan_s, reference),
            percent_text(run.metrics.cache_reuse),
            count_text(run.metrics.new_prefill_tokens),
            unit.text(run.metrics.tail_s["5"]),
            percent_text(run.metrics.request_imbalance),
            f"{run.metrics.makespan_s / run.bounds.best:.2f}",
        )
        for run in comparison.runs
    ]


TURN_COLUMNS = ("run", "without hit", "queue p95", "recomputed", "least busy", "most busy")


def turn_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """One row of text a run, in the order of TURN_COLUMNS; none where the workers do not report turns."""
    return [
        (
            run.settings.name,
            f"{run.turns.later_turns_without_hit:,} of {run.turns.later_turns:,}",
            f"{run.turns.queue_p95_s:.1f} s",
            count_text(run.turns.recomputed_tokens),
            percent_text(min(run.metrics.worker_busy)),
            percent_text(max(run.metrics.worker_busy)),
        )
        for run in comparison.runs
        if run.turns is not None
    ]


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain data: ``{"workload", "worker_model", "runs": [...]}``, baseline first."""
    unused = {} if comparison.unbalanced is None else {"state_ratio": None}
    return {
        "workload": comparison.workload,
        "worker_model": comparison.model.name,
        "runs": [
            {
                "name": run.settings.name,
                "adds": rung.adds,
                **asdict(run.metrics),
                **({} if run.turns is None else asdict(run.turns)),
                "lower_bound_s": run.bounds.best,
                "bounds": asdict(run.bounds),
                "settings": asdict(run.settings) | unused,
            }
            for rung, run in zip(comparison.rungs, comparison.runs, strict=True)
        ],
    }
