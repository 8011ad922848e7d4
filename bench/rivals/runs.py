"""Simulated runs of many settings on many seeds, on as many processes as the machine has cores."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, replace
from typing import Final

from bench.pool import pool
from bench.rivals.cases import Case, Source, workload
from coresched.lab.advice.judgement import Interval, interval
from coresched.lab.simulator.model import WorkerModel
from coresched.lab.simulator.run import run_workload
from coresched.lab.simulator.settings import RunSettings

SECONDS_A_RUN: Final = 0.2
"""CPU, of the mean run: for the estimate before anything ran."""


@dataclass(frozen=True)
class Result:
    """What is compared of one run."""

    makespan_s: float
    cache_reuse: float
    of_bound: float
    """Makespan over what no schedule could beat."""
    request_imbalance: float | None
    migrations: int


Wanted = tuple[Case, RunSettings]
Results = Mapping[Wanted, Sequence[Result]]
"""Of each case and settings, in the order of the seeds."""

_Chunk = tuple[Source, int, int, tuple[tuple[WorkerModel, RunSettings], ...]]
"""Runs of one batch: its source, pages, seed, and what to run on it."""


def run_all(
    wanted: Iterable[Wanted],
    seeds: Sequence[int],
    done: Callable[[int, int], None] = lambda runs, of: None,
) -> Results:
    """Each of ``wanted`` once on every seed. ``done(runs, of)`` is called after each batch's."""
    unique = list(dict.fromkeys(wanted))
    chunks = _chunks(unique, seeds)
    found: dict[tuple[Wanted, int], Result] = {}
    with pool() as processes:
        running = {processes.submit(_run, chunk): keys for chunk, keys in chunks}
        for future in as_completed(running):
            found.update(zip(running[future], future.result(), strict=True))
            done(len(found), len(unique) * len(seeds))
    return {one: [found[one, seed] for seed in seeds] for one in unique}


def _chunks(wanted: Sequence[Wanted], seeds: Sequence[int]) -> list[tuple[_Chunk, list[tuple[Wanted, int]]]]:
    """What shares a batch runs in one process, which builds it once."""
    shared: dict[tuple[Source, int], list[Wanted]] = {}
    for case, settings in wanted:
        shared.setdefault((case.source, case.model.page_tokens), []).append((case, settings))
    return [
        (
            (source, pages, seed, tuple((case.model, settings) for case, settings in some)),
            [(one, seed) for one in some],
        )
        for seed in seeds
        for (source, pages), some in shared.items()
    ]


def _run(chunk: _Chunk) -> list[Result]:
    source, pages, seed, wanted = chunk
    prepared = workload(source, pages, seed)
    results = []
    for model, settings in wanted:
        run = run_workload(prepared, replace(settings, seed=seed), model)
        metrics = run.metrics
        results.append(
            Result(
                metrics.makespan_s,
                metrics.cache_reuse,
                metrics.makespan_s / run.bounds.best,
                metrics.request_imbalance,
                metrics.migrations,
            )
        )
    return results


def against(runs: Sequence[Result], reference: Sequence[Result]) -> Interval:
    """How much longer the makespan is than the reference's, as a share, seed by seed."""
    return interval([mine.makespan_s / its.makespan_s - 1 for mine, its in zip(runs, reference, strict=True)])


def estimate_text(runs: int) -> str:
    """How long so many runs may take here."""
    cores = os.cpu_count() or 1
    minutes = runs * SECONDS_A_RUN / cores / 60
    return f"{runs} simulated runs, about {max(1, round(minutes))} min on {cores} cores"
