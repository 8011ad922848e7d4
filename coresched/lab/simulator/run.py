"""Simulating one run: checks first, then the engine, then metrics."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from coresched.lab.bounds import Bounds, lower_bounds
from coresched.lab.metrics import Metrics, measure
from coresched.lab.simulator.engine.cluster import Cluster
from coresched.lab.simulator.memory import require_fit, split_memory
from coresched.lab.simulator.model import WorkerModel
from coresched.lab.simulator.outcome import Outcome
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.workload import build_workload
from coresched.trajectory.schema import Trajectory

EVENTS_BETWEEN_REPORTS = 20_000


@dataclass(frozen=True)
class SimulatedRun:
    """One finished run: its configuration, its metrics, what it counted and what no schedule could beat."""

    settings: RunSettings
    metrics: Metrics
    bounds: Bounds
    outcome: Outcome


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
    memory = split_memory(model, settings.state_ratio)
    require_fit(workload, memory)
    cluster = Cluster(workload, settings, model, memory)
    while cluster.advance(EVENTS_BETWEEN_REPORTS):
        if progress is not None:
            progress(cluster.completed)
    outcome = cluster.outcome()
    bounds = lower_bounds(
        workload,
        model,
        memory,
        workers=settings.workers,
        environment_concurrency=settings.environment_concurrency,
    )
    return SimulatedRun(settings, measure(outcome), bounds, outcome)
