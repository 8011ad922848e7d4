"""One run on workers that are engines of their own: checks first, then the driver, then metrics."""

from collections.abc import Callable, Iterable

from coresched.lab.bounds import lower_bounds
from coresched.lab.metrics import measure
from coresched.lab.simulator.lockstep.cluster import LockstepCluster
from coresched.lab.simulator.lockstep.turns import measure_turns
from coresched.lab.simulator.lockstep.workers import Deployment
from coresched.lab.simulator.memory import split_memory
from coresched.lab.simulator.run import SimulatedRun, check_run
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.workload import build_workload, submission_order
from coresched.trajectory.schema import Trajectory


def simulate_in_lockstep(
    trajectories: Iterable[Trajectory],
    settings: RunSettings,
    deployment: Deployment,
    *,
    absent_environment_s: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> SimulatedRun:
    """Run the batch to its end, as `simulate` does, on workers of ``deployment``.

    The same inputs give the same result where the workers are deterministic. Raises InputError as
    `build_workload` and `Deployment.workers` do.
    """
    model, batch = deployment.model, list(trajectories)
    workload = build_workload(
        batch,
        page_tokens=model.page_tokens,
        seed=settings.seed,
        absent_environment_s=absent_environment_s,
    )
    kv_tokens = split_memory(model, settings.state_ratio).kv_tokens
    with deployment.workers(submission_order(batch, settings.seed), workload, settings) as workers:
        cluster = LockstepCluster(workload, settings, model.times, workers, kv_tokens)
        outcome = cluster.run(progress)
    bounds = lower_bounds(
        workload,
        deployment.bounds_model,
        workers=settings.workers,
        environment_concurrency=settings.environment_concurrency,
        shared_prefixes_cached=True,
    )
    check_run(workload, outcome, bounds)
    turns = measure_turns(cluster.turns, workload.samples, outcome.new_prefill_tokens, cluster.counts)
    return SimulatedRun(settings, measure(outcome), bounds, outcome, turns)
