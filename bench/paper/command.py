"""`python -m bench paper`: the published experiments again in the simulator, beside the published numbers."""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from math import exp, log
from typing import Any, get_args

from rich.console import Console
from rich.table import Table

from bench.machine import this_machine
from bench.paper.experiments import EXPERIMENTS, Cell
from bench.paper.runs import Results, makespan_min, run_all
from bench.paper.shapes import SHAPES, Shape, Verdict
from bench.progress import announce, clear
from bench.results import Report, heading, print_page, today
from coresched import __version__
from coresched.cli.parser import CommandParser, add_command, count
from coresched.cli.terminal import stdout_console
from coresched.errors import InputError
from coresched.lab.advice.judgement import LEAST_SEEDS

SEEDS = 20
QUICK = ("figure11",)

NOTES = (
    "Minutes, paper | simulated (median over seeds; each seed is another batch with the",
    "published totals). - : stopped at the limit of the published run; not printed: blank.",
    "Effects: share of the makespan, median and its 95 % interval over seeds. In part: the",
    "sign is sure, the size is less than half or more than twice the published one.",
)


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "paper",
        summary="the published experiments in the simulator, beside the published numbers",
        description="Simulate Figures 3, 6, 8, 10, 11, 12 and Tables 1, 2 of arXiv:2611.16661 with one\n"
        "calibrated worker model, and say of each shape whether it reproduces.",
        example="python -m bench paper --only figure8 --seeds 20",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=tuple(EXPERIMENTS),
        help="this experiment; repeat for more (default all)",
    )
    parser.add_argument(
        "--seeds", type=count, default=SEEDS, metavar="N", help="seeds, at least 6 (default %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="one experiment, six seeds: to see that it runs")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.seeds < LEAST_SEEDS:
        raise InputError(f"--seeds {args.seeds} is too few for an interval; give at least {LEAST_SEEDS}")
    names = args.only or (QUICK if args.quick else tuple(EXPERIMENTS))
    seeds = range(LEAST_SEEDS if args.quick else args.seeds)
    report = Report(args.command_line, this_machine(), len(seeds), ())
    found: dict[str, Results] = {}
    for name in names:
        found[name] = _simulated(name, seeds)
    clear()
    shapes = [shape for name, results in found.items() for shape in SHAPES[name](results)]
    if args.json:
        print(json.dumps(_as_json(report, found, shapes), indent=2))
    else:
        _print(report, found, shapes)
    return 0


def _simulated(name: str, seeds: Sequence[int]) -> Results:
    cells = list(EXPERIMENTS[name]())
    runs = len(cells) * len(seeds)
    return run_all(cells, seeds, lambda done: announce(f"{name}: {done} of {runs} runs"))


def _as_json(report: Report, found: dict[str, Results], shapes: Sequence[Shape]) -> dict[str, Any]:
    return {
        "command": report.command,
        "date": today(),
        "version": __version__,
        "machine": asdict(report.machine),
        "seeds": report.repeats,
        "cells": [
            {
                "experiment": cell.experiment,
                "workload": cell.workload,
                "row": cell.row,
                "column": cell.column,
                "published_min": cell.published_min,
                "published_stopped": cell.stopped,
                "simulated_min": makespan_min(cell, results),
                "runs": [asdict(result) for result in results[cell]],
            }
            for results in found.values()
            for cell in results
        ],
        "shapes": [asdict(shape) for shape in shapes],
    }


def _print(report: Report, found: dict[str, Results], shapes: Sequence[Shape]) -> None:
    console = stdout_console()
    grids = [table for results in found.values() for table in _grids(results)]
    print_page(
        console, heading(report.command, report.machine), *grids, _shape_table(shapes, console), notes=NOTES
    )
    verdicts = Counter(shape.verdict for shape in shapes)
    counted = ", ".join(f"{verdict}: {verdicts[verdict]}" for verdict in get_args(Verdict))
    console.print(f"Of {len(shapes)} shapes: {counted}.")
    for results in found.values():
        console.print(_agreement(results))


def _grids(results: Results) -> list[Table]:
    tables = []
    for name in dict.fromkeys(cell.workload for cell in results):
        cells = [cell for cell in results if cell.workload == name]
        table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
        table.add_column(f"{cells[0].experiment}\n{name}", no_wrap=True)
        columns = list(dict.fromkeys(cell.column for cell in cells))
        for column in columns:
            table.add_column(column, justify="right", no_wrap=True)
        for row in dict.fromkeys(cell.row for cell in cells):
            by_column = {cell.column: cell for cell in cells if cell.row == row}
            table.add_row(row, *(_cell(by_column.get(column), results) for column in columns))
        tables.append(table)
    return tables


def _cell(cell: Cell | None, results: Results) -> str:
    if cell is None:
        return ""
    ours = makespan_min(cell, results)
    theirs = "-" if cell.stopped else "" if cell.published_min is None else f"{cell.published_min:.0f}"
    return f"{theirs}|{'-' if ours is None else f'{ours:.0f}'}"


def _shape_table(shapes: Sequence[Shape], console: Console) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    for head in ("", "workload", "shape", "paper", "simulated", "verdict"):
        table.add_column(head, overflow="fold")
    for shape in shapes:
        table.add_row(
            shape.experiment, shape.workload, shape.claim, shape.published, shape.simulated, shape.verdict
        )
    return table


def _agreement(results: Results) -> str:
    """How far the cells are off that ended in both, and on how many both agree whether the run ends."""
    cells = list(results)
    logs = [
        log(ours / cell.published_min)
        for cell in cells
        if cell.published_min is not None and (ours := makespan_min(cell, results)) is not None
    ]
    stopped = sum(cell.stopped == (makespan_min(cell, results) is None) for cell in cells)
    off = exp((sum(value * value for value in logs) / len(logs)) ** 0.5) - 1
    return (
        f"{cells[0].experiment}: {stopped} of {len(cells)} cells agree on whether the run ends in time; "
        f"where both do, the makespan is {off:.0%} off (root mean square of logarithms)."
    )
