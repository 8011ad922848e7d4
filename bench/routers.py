"""`python -m bench routers`: every router of the simulator on the same batches, each beside LBCH."""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from multiprocessing import get_context
from statistics import median
from typing import Any, Final

from rich.table import Table

from bench.machine import this_machine
from bench.paper.experiments import WORKER_MODEL, batch, figure8
from bench.progress import announce, clear
from bench.results import heading, print_page, today
from coresched import __version__
from coresched.cli.parser import CommandParser, add_command, count
from coresched.cli.terminal import stdout_console
from coresched.errors import InputError
from coresched.lab.advice.judgement import LEAST_SEEDS, Interval, interval
from coresched.lab.ladder import Choices, mechanism_ladder
from coresched.lab.simulator.model import load_worker_model
from coresched.lab.simulator.run import run_workload
from coresched.lab.simulator.settings import ROUTERS, Routing, RunSettings
from coresched.lab.simulator.workload import Workload, build_workload
from coresched.trajectory.generator import generate
from coresched.trajectory.schema import Trajectory

SEEDS: Final = 20
REFERENCE: Final = "lbch"
TIGHT_MODEL: Final = "h20-tp4-hybrid-tight"
GENERATED: Final = {"generated swe": ("swe", 400), "generated terminal": ("terminal", 600)}
"""Profile of the generator, and samples."""
PRESSURE: Final = 1.5
"""Of the samples that fit into the memory of the generated cases' workers, how many are admitted."""

NOTES = (
    "Each seed is another batch, in another order, with other labels. min: makespan",
    "in minutes. % of lbch: how much longer than with lbch on the same seed, median",
    "and 95 % interval. The rest are medians: reuse, imbalance of requests (%),",
    "turns served elsewhere than the one before, makespan over its lower bound.",
)


@dataclass(frozen=True)
class Case:
    """A workload, its workers, and how they are run but for the router."""

    name: str
    workload: str
    model: str
    settings: RunSettings


@dataclass(frozen=True)
class Result:
    """What is compared of one run."""

    makespan_s: float
    cache_reuse: float
    request_imbalance: float
    migrations: int
    of_bound: float


Results = Mapping[tuple[Case, Routing], Sequence[Result]]
"""Of each case and router, in the order of the seeds."""


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "routers",
        summary="every router of the simulator beside LBCH",
        description="Simulate the paper's three workloads on two and on four workers, and two generated\n"
        "ones on workers with too little memory, under every router, paired seed by seed.",
        example="python -m bench routers --seeds 20",
    )
    parser.add_argument(
        "--seeds", type=count, default=SEEDS, metavar="N", help="seeds, at least 6 (default %(default)s)"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=ROUTERS,
        metavar="ROUTER",
        help="this router beside lbch; repeat for more (default all)",
    )
    parser.add_argument("--quick", action="store_true", help="one case, six seeds: to see that it runs")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.seeds < LEAST_SEEDS:
        raise InputError(f"--seeds {args.seeds} is too few for an interval; give at least {LEAST_SEEDS}")
    seeds = LEAST_SEEDS if args.quick else args.seeds
    chosen = cases()[:1] if args.quick else cases()
    only = {*(args.only or ROUTERS), REFERENCE}
    results = run_all(chosen, [router for router in ROUTERS if router in only], range(seeds))
    clear()
    if args.json:
        print(json.dumps(as_json(args.command_line, results), indent=2))
        return 0
    console = stdout_console()
    tables = [_table(case, results) for case in chosen]
    print_page(console, heading(args.command_line, this_machine()), *tables, notes=NOTES)
    for case in chosen:
        console.print(f"{case.name}: {_verdict(case, results)}")
    return 0


def cases() -> list[Case]:
    """The workloads of Figure 8 on two workers and on four, which admit as many each; then the generated."""
    found = []
    for workers in (2, 4):
        for cell in figure8():
            if cell.row == REFERENCE:
                admitted = cell.settings.sample_concurrency * workers // cell.settings.workers
                settings = replace(cell.settings, workers=workers, sample_concurrency=admitted)
                found.append(Case(f"{cell.workload}, W {workers}", cell.workload, WORKER_MODEL, settings))
    for name in GENERATED:
        ladder = mechanism_ladder(_trajectories(name, 0), load_worker_model(TIGHT_MODEL), Choices(workers=2))
        planned = ladder[-1].settings
        settings = replace(planned, sample_concurrency=round(PRESSURE * planned.sample_concurrency))
        found.append(Case(f"{name}, W 2", name, TIGHT_MODEL, settings))
    return found


def _trajectories(name: str, seed: int) -> list[Trajectory]:
    if name not in GENERATED:
        return batch(name, seed)
    profile, samples = GENERATED[name]
    return list(generate(profile, samples, seed=seed + 1))


@cache
def _prepared(name: str, model: str, seed: int) -> Workload:
    pages = load_worker_model(model).page_tokens
    return build_workload(_trajectories(name, seed), page_tokens=pages, seed=seed)


def run_one(case: Case, router: Routing, seed: int) -> Result:
    """One run of a case."""
    model = load_worker_model(case.model)
    settings = replace(case.settings, name=router, routing=router, seed=seed)
    done = run_workload(_prepared(case.workload, case.model, seed), settings, model)
    metrics = done.metrics
    return Result(
        metrics.makespan_s,
        metrics.cache_reuse,
        metrics.request_imbalance or 0.0,
        metrics.migrations,
        metrics.makespan_s / done.bounds.best,
    )


def run_all(chosen: Sequence[Case], routers: Sequence[Routing], seeds: Sequence[int]) -> Results:
    """Every case under these routers on all seeds, on as many processes as there are cores."""
    tasks = [(case, router, seed) for case, seed, router in product(chosen, seeds, routers)]
    results: dict[tuple[Case, Routing], list[Result]] = {}
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("forkserver")) as pool:
        for done, (task, result) in enumerate(
            zip(tasks, pool.map(_run, tasks, chunksize=len(routers)), strict=True)
        ):
            case, router, _ = task
            results.setdefault((case, router), []).append(result)
            announce(f"{case.name}: {done + 1} of {len(tasks)} runs")
    return results


def _run(task: tuple[Case, Routing, int]) -> Result:
    return run_one(*task)


def against_reference(case: Case, router: Routing, results: Results) -> Interval:
    """How much longer than with LBCH the makespan is, as a share, seed by seed."""
    pairs = zip(results[case, router], results[case, REFERENCE], strict=True)
    return interval([mine.makespan_s / its.makespan_s - 1 for mine, its in pairs])


def as_json(command: str, results: Results) -> dict[str, Any]:
    return {
        "command": command,
        "date": today(),
        "version": __version__,
        "machine": asdict(this_machine()),
        "rows": [
            {
                "case": case.name,
                "router": router,
                "settings": asdict(case.settings),
                "against_lbch": asdict(against_reference(case, router, results)),
                "runs": [asdict(result) for result in found],
            }
            for (case, router), found in results.items()
        ],
    }


def _table(case: Case, results: Results) -> Table:
    table = Table(box=None, padding=(0, 1), collapse_padding=True, pad_edge=False, header_style="bold")
    table.add_column(case.name, no_wrap=True)
    for head in ("min", "% of lbch", "reuse", "imb.", "moved", "bound"):
        table.add_column(head, justify="right", no_wrap=True)
    for router in _ranked(case, results):
        found = results[case, router]
        table.add_row(
            router,
            f"{median(one.makespan_s for one in found) / 60:.1f}",
            "" if router == REFERENCE else _percents(against_reference(case, router, results)),
            f"{median(one.cache_reuse for one in found) * 100:.1f}",
            f"{median(one.request_imbalance for one in found) * 100:.1f}",
            f"{median(one.migrations for one in found):.0f}",
            f"{median(one.of_bound for one in found):.2f}",
        )
    return table


def _ranked(case: Case, results: Results) -> list[Routing]:
    """Best against LBCH first."""
    run = [router for router in ROUTERS if (case, router) in results]
    return sorted(run, key=lambda router: against_reference(case, router, results).median)


def _percents(share: Interval) -> str:
    return f"{share.median * 100:+.1f} ({share.low * 100:+.1f} to {share.high * 100:+.1f})"


def _verdict(case: Case, results: Results) -> str:
    found = {router: against_reference(case, router, results) for router in _ranked(case, results)}
    better = [router for router, share in found.items() if share.high < 0]
    worse = [router for router, share in found.items() if share.low > 0]
    return (
        f"surely shorter than with lbch: {', '.join(better) or 'none'}; "
        f"surely longer: {', '.join(worse) or 'none'}."
    )
