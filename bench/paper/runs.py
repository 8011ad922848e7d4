"""Every cell of an experiment simulated, seed by seed, on as many processes as the machine has cores."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import median

from bench.paper.experiments import WORKER_MODEL, Cell, batch
from bench.pool import pool
from coresched.lab.simulator.model import WorkerModel, load_worker_model
from coresched.lab.simulator.run import run_workload
from coresched.lab.simulator.workload import Workload, build_workload


@dataclass(frozen=True)
class Result:
    """What a figure or a table may show of one simulated run."""

    makespan_min: float
    tail_min: float
    """L5: what the last 5 % of the samples take."""
    cache_reuse: float
    priority_calculation_s: float
    request_imbalance: float | None
    of_bound: float


Results = Mapping[Cell, Sequence[Result]]
"""Of each cell, its results in the order of the seeds."""


@cache
def worker_model() -> WorkerModel:
    return load_worker_model(WORKER_MODEL)


@cache
def prepared(name: str, seed: int) -> Workload:
    return build_workload(batch(name, seed), page_tokens=worker_model().page_tokens, seed=seed)


def run_cell(cell: Cell, seed: int) -> Result:
    """One run. Another seed is another batch, in another order, with other homes on the hash ring."""
    run = run_workload(prepared(cell.workload, seed), replace(cell.settings, seed=seed), worker_model())
    metrics = run.metrics
    return Result(
        metrics.makespan_s / 60,
        metrics.tail_s["5"] / 60,
        metrics.cache_reuse,
        metrics.priority_calculation_s or 0.0,
        metrics.request_imbalance,
        metrics.makespan_s / run.bounds.best,
    )


def run_all(cells: Sequence[Cell], seeds: Sequence[int], done: Callable[[int], None]) -> Results:
    """All cells on all seeds. ``done(runs)`` is called after each."""
    tasks = sorted(
        ((cell, seed) for cell in cells for seed in seeds), key=lambda task: (task[1], task[0].workload)
    )
    results: dict[tuple[Cell, int], Result] = {}
    with pool() as processes:
        for task, result in zip(tasks, processes.map(_run, tasks, chunksize=4), strict=True):
            results[task] = result
            done(len(results))
    return {cell: [results[cell, seed] for seed in seeds] for cell in cells}


def _run(task: tuple[Cell, int]) -> Result:
    return run_cell(*task)


def makespan_min(cell: Cell, results: Results) -> float | None:
    """The median over the seeds, or None where more than half of them pass the limit of the published run."""
    middle = median(result.makespan_min for result in results[cell])
    return None if cell.limit_min is not None and middle > cell.limit_min else middle


def of(results: Results, **wanted: str) -> list[Cell]:
    """The cells whose attributes have these values, in their order."""
    return [cell for cell in results if all(getattr(cell, name) == value for name, value in wanted.items())]


def one(results: Results, **wanted: str) -> Cell:
    """The only such cell. Raises ValueError for none or several."""
    (found,) = of(results, **wanted)
    return found


def paired(cell: Cell, other: Cell, results: Results, of: Callable[[Result], float]) -> list[float]:
    """How much larger a value is than another cell's on the same seed, as a share of that."""
    pairs: Iterable[tuple[Result, Result]] = zip(results[cell], results[other], strict=True)
    return [of(mine) / of(its) - 1 for mine, its in pairs]
