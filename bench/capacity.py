"""`python -m bench capacity`: the estimators against the published grid, and against a grid out of sample."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from math import isfinite
from statistics import median
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from bench.machine import this_machine
from bench.paper.batches import BATCHES
from bench.paper.figure3 import WORKLOADS, Classified, classified
from bench.paper.outofsample import TARGET, TOLD, Trial, half_memory, reason, summarised, trials
from bench.progress import announce, clear
from bench.results import Report, heading, today
from coresched import __version__
from coresched.cli.parser import CommandParser, add_command
from coresched.cli.terminal import stdout_console
from coresched.lab.simulator.model import WorkerModel
from coresched.trajectory.schema import Trajectory

Row = TypeVar("Row", Classified, Trial)

SEEDS, QUICK_SEEDS = range(5), range(1)
QUICK_BATCHES = ("WideSearch", "bimodal")

CELL_NOTES = (
    "Published cells (arXiv:2611.16661, Figure 3) put on the side on which they were",
    "measured. Good: within 10% of the best makespan at this or a lower C_S.",
    "right: range over seeds. wrong: good by mistake / bad by mistake, medians.",
)
TRIAL_NOTES = (
    "Planned on every other trajectory, run on the rest: makespan over that of the",
    "best (r, C) of a grid on the same half, median and worst seed; C, best C and r",
    "are medians. peak, told: planned on the very half that is run.",
)


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "capacity",
        summary="the capacity estimators against published and simulated grids",
        description="Classify the published grid of (r, C_S) cells by each estimator. Then plan on one half\n"
        "of a batch, simulate the other half, and compare with the best cell of a grid around the plan.",
        example="python -m bench capacity --quick",
    )
    parser.add_argument(
        "--quick", action="store_true", help="one seed, two batches: to see that it runs, not to quote"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    seeds = QUICK_SEEDS if args.quick else SEEDS
    batches = QUICK_BATCHES if args.quick else tuple(BATCHES)
    report = Report(args.command_line, this_machine(), len(seeds), ())
    cells = [found for name in WORKLOADS for seed in seeds for found in classify(name, seed)]
    model = half_memory()
    done = [trial for name in batches for seed in seeds for trial in tried(name, seed, model)]
    clear()
    if args.json:
        print(json.dumps(as_json(report, cells, done), indent=2))
    else:
        print_all(report, cells, done)
    return 0


@cache
def batch(name: str, seed: int) -> list[Trajectory]:
    """The trajectories of a seed, built once for both experiments."""
    return BATCHES[name](seed)


def classify(name: str, seed: int) -> list[Classified]:
    announce(f"{name}, seed {seed}: published cells")
    return classified(name, seed, batch(name, seed))


def tried(name: str, seed: int, model: WorkerModel) -> list[Trial]:
    def progress(step: str) -> None:
        announce(f"{name}, seed {seed}: {step}")

    return trials(name, seed, batch(name, seed), model, progress)


def print_all(report: Report, cells: Sequence[Classified], done: Sequence[Trial]) -> None:
    """Both tables, what their columns mean, and a line for each miss of the default estimator."""
    console = stdout_console()
    for line in heading(report.command, report.machine):
        console.print(line)
    print_cells(console, cells)
    print_trials(console, done)
    told = {(trial.workload, trial.seed): trial for trial in done if trial.estimator == TOLD}
    missed = [trial for trial in done if trial.estimator == "peak" and not trial.on_target]
    if missed:
        console.print()
    for trial in missed:
        console.print(reason(trial, told[trial.workload, trial.seed]), soft_wrap=True)


def print_cells(console: Console, cells: Sequence[Classified]) -> None:
    table = new_table("workload", "estimator", "right", "of", "wrong")
    for (workload, estimator), found in by_case(cells):
        scores = [each.score for each in found]
        right = sorted(score.right for score in scores)
        table.add_row(
            workload,
            estimator,
            f"{right[0]} to {right[-1]}" if right[0] < right[-1] else f"{right[0]}",
            f"{scores[0].cells}",
            f"{median(len(score.false_good) for score in scores):g} / "
            f"{median(len(score.false_bad) for score in scores):g}",
        )
    print_table(console, table, CELL_NOTES)


def print_trials(console: Console, done: Sequence[Trial]) -> None:
    table = new_table("workload", "estimator", "median", "worst", "C", "best C", "r", f"within {TARGET:.0%}")
    for (workload, estimator), found in by_case(done):
        summary = summarised(found)
        table.add_row(
            workload,
            estimator,
            times_text(summary.median_ratio),
            times_text(summary.worst_ratio),
            f"{summary.concurrency:g}",
            f"{summary.best_concurrency:g}",
            f"{summary.state_ratio:.3f}",
            f"{summary.on_target} of {summary.seeds}",
        )
    print_table(console, table, TRIAL_NOTES)


def by_case(rows: Sequence[Row]) -> list[tuple[tuple[str, str], list[Row]]]:
    """Rows of one workload and estimator together, in the order in which the cases first come."""
    cases: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        cases.setdefault((row.workload, row.estimator), []).append(row)
    return list(cases.items())


def times_text(ratio: float) -> str:
    return f"{ratio:.3f}x" if isfinite(ratio) else "cannot run"


def new_table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place < 2 else "right", no_wrap=True)
    return table


def print_table(console: Console, table: Table, notes: Sequence[str]) -> None:
    console.print()
    console.print(table)
    console.print()
    for note in notes:
        console.print(note)


def as_json(report: Report, cells: Sequence[Classified], done: Sequence[Trial]) -> dict[str, object]:
    return {
        "command": report.command,
        "date": today(),
        "version": __version__,
        "machine": asdict(report.machine),
        "figure3": [asdict(each) for each in cells],
        "out_of_sample": [trial_as_json(trial) for trial in done],
    }


def trial_as_json(trial: Trial) -> dict[str, object]:
    """``makespan_s`` and ``ratio_to_best`` are null where the planned pools cannot run the batch."""
    able = trial.makespan_s is not None
    return {
        **asdict(trial),
        "ratio_to_best": trial.ratio_to_best if able else None,
        "on_target": trial.on_target,
    }
