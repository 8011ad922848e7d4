"""Simulating one run: checks first, then the engine, then metrics."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from coresched.lab.bounds import Bounds, lower_bounds
from coresched.lab.metrics import Metrics, measure
from coresched.lab.simulator.engine.cluster import Cluster
from coresched.lab.simulator.lockstep.turns import TurnMetrics
from coresched.lab.simulator.memory import require_fit, split_memory
from coresched.lab.simulator.model import WorkerModel
from coresched.lab.simulator.outcome import Outcome
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.workload import Workload, build_workload
from coresched.trajectory.schema import Trajectory

EVENTS_BETWEEN_REPORTS = 20_000


@dataclass(frozen=True)
class SimulatedRun:
    """One finished run: its configuration, its metrics, what it counted and what no schedule could beat."""

    settings: RunSettings
    metrics: Metrics
    bounds: Bounds
    outcome: Outcome
    turns: TurnMetrics | None = None
    """Of a lockstep run, whose workers report each turn."""


def simulate(
    trajectories: Iterable[Trajectory],
    settings: RunSettings,
    model: WorkerModel,
    *,
    absent_environment_s: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> SimulatedRun:
    """Run the batch to its end in virtual time; the same inputs always give the same result.

    ``progress(completed samples)`` is called now and then, at points where Ctrl-C is honoured too.
    Raises InputError when a trajectory cannot run at all (see `build_workload`, `split_memory`,
    `require_fit`).
    """
    workload = build_workload(
        trajectories,
        page_tokens=model.page_tokens,
        seed=settings.seed,
        absent_environment_s=absent_environment_s,
    )
    return run_workload(workload, settings, model, progress=progress)


def run_workload(
    workload: Workload,
    settings: RunSettings,
    model: WorkerModel,
    *,
    progress: Callable[[int], None] | None = None,
    bounds: Bounds | None = None,
) -> SimulatedRun:
    """The same for a workload that was built before, with the page size of the model and the seed of the run.

    ``bounds``: of an earlier run of this workload on as many workers and environments, which are the same.
    Raises InputError for pools that do not hold it.
    """
    memory = split_memory(model, settings.state_ratio, settings.pool_policy)
    require_fit(workload, memory)
    cluster = Cluster(workload, settings, model, memory)
    while cluster.advance(EVENTS_BETWEEN_REPORTS):
        if progress is not None:
            progress(cluster.completed)
    outcome = cluster.outcome()
    if bounds is None:
        bounds = lower_bounds(
            workload,
            model,
            workers=settings.workers,
            environment_concurrency=settings.environment_concurrency,
        )
    check_run(workload, outcome, bounds)
    return SimulatedRun(settings, measure(outcome), bounds, outcome)


def check_run(workload: Workload, outcome: Outcome, bounds: Bounds) -> None:
    """What holds in every run; a result without it would be worse than none. Raises AssertionError."""
    broken = []
    if len(outcome.completed_s) != workload.samples:
        broken.append(f"{len(outcome.completed_s)} of {workload.samples} samples completed")
    elif outcome.completed_s[-1] < bounds.best * (1 - 1e-9):
        broken.append(f"the makespan {outcome.completed_s[-1]} s is below its lower bound {bounds.best} s")
    if sum(outcome.output_tokens) != sum(workload.output_tokens):
        broken.append(f"{sum(outcome.output_tokens)} of {sum(workload.output_tokens)} tokens were generated")
    if broken:
        raise AssertionError(f"the simulator is wrong, please report this: {'; '.join(broken)}")
