"""The paper's workloads in the simulator, with returning turns held and not."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Final

from bench.coalescing.setups import FIXED_COSTS_S, costing
from bench.paper.experiments import WORKER_MODEL, Cell, batch, figure3, figure6, figure8
from bench.pool import pool
from coresched.lab.simulator.model import load_worker_model
from coresched.lab.simulator.run import run_workload
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.workload import Workload, build_workload

HELD: Final = 8
WITH_ROOM: Final = {"SWE": (0.135, 123), "WideSearch": (0.15, 98), "BFCL": (2.26, 644)}
"""Of Figure 3: r and C_S of a cell in which nothing is evicted and no request waits for a place."""
FULL: Final = {"SWE": 196, "WideSearch": 150, "BFCL": 1300}
"""Of Figure 6: C_S with a standing queue."""
SHORT: Final = {"fcfs": "fcfs", "routing-prefix": "rp"}


@dataclass(frozen=True)
class Case:
    """A workload and how it is run, but for p0 and what is held; the name has C_S, or W."""

    name: str
    workload: str
    settings: RunSettings


@dataclass(frozen=True)
class Pair:
    """Makespans of one batch, in seconds."""

    as_it_is_s: float
    held_s: float

    @property
    def change(self) -> float:
        return self.held_s / self.as_it_is_s - 1


Pairs = Mapping[tuple[Case, float], Sequence[Pair]]
"""Of each case and p0, in the order of the seeds."""


def cases() -> list[Case]:
    """For each workload: with room under both orders, full under both, and on two workers."""
    return [case for name in WITH_ROOM for case in _cases_of(name)]


def _cases_of(name: str) -> Iterator[Case]:
    ratio, concurrency = WITH_ROOM[name]
    room = _only(
        cell
        for cell in figure3()
        if (cell.workload, cell.settings.state_ratio, cell.settings.sample_concurrency)
        == (name, ratio, concurrency)
    )
    for policy in SHORT:
        settings = replace(room.settings, worker_policy=policy)
        yield Case(f"{name} {concurrency} {SHORT[policy]}", name, settings)
    for policy in SHORT:
        full = _only(
            cell
            for cell in figure6()
            if (cell.workload, cell.row, cell.settings.sample_concurrency) == (name, policy, FULL[name])
        )
        yield Case(f"{name} {FULL[name]} {SHORT[policy]}", name, full.settings)
    pair = _only(cell for cell in figure8() if (cell.workload, cell.row) == (name, "lbch"))
    yield Case(f"{name} W 2 rp", name, pair.settings)


def _only(cells: Iterator[Cell]) -> Cell:
    (cell,) = cells
    return cell


@cache
def _prepared(name: str, seed: int) -> Workload:
    return build_workload(
        batch(name, seed), page_tokens=load_worker_model(WORKER_MODEL).page_tokens, seed=seed
    )


def run_pair(task: tuple[Case, float, int]) -> Pair:
    """Both runs of a case, p0 and seed."""
    case, fixed_s, seed = task
    model = costing(load_worker_model(WORKER_MODEL), fixed_s)
    makespans = [
        run_workload(
            _prepared(case.workload, seed), replace(case.settings, seed=seed, returns_held=held), model
        ).metrics.makespan_s
        for held in (1, HELD)
    ]
    return Pair(*makespans)


def run_all(chosen: Sequence[Case], seeds: Sequence[int], announce: Callable[[str], None]) -> Pairs:
    """On as many processes as there are cores."""
    tasks = [(case, fixed_s, seed) for case, seed, fixed_s in product(chosen, seeds, FIXED_COSTS_S)]
    found: dict[tuple[Case, float], list[Pair]] = {}
    with pool() as processes:
        pairs = processes.map(run_pair, tasks, chunksize=len(FIXED_COSTS_S))
        for done, ((case, fixed_s, _), pair) in enumerate(zip(tasks, pairs, strict=True)):
            found.setdefault((case, fixed_s), []).append(pair)
            announce(f"{case.name}: {done + 1} of {len(tasks)} pairs of runs")
    return found
