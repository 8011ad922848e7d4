"""Runs the ladder with a progress bar and prints what came of it; the body of `demo` and `simulate`."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from coresched.cli.options import choices_of
from coresched.cli.terminal import stdout_console
from coresched.errors import InputError
from coresched.files import require_writable, write_whole
from coresched.lab.comparison import (
    COLUMNS,
    TURN_COLUMNS,
    Comparison,
    as_json,
    compare,
    table_rows,
    turn_rows,
)
from coresched.lab.ladder import Engine, Rung, mechanism_ladder
from coresched.lab.report.page import comparison_page
from coresched.lab.simulator.model import load_worker_model
from coresched.trajectory.schema import Trajectory

if TYPE_CHECKING:
    from coresched_engine.fleet.deployment import EngineDeployment

TABLE_WIDTH = 78


def run_comparison(
    args: argparse.Namespace,
    trajectories: Sequence[Trajectory],
    *,
    title: str,
    workload: str,
    engines: "EngineDeployment | None" = None,
) -> int:
    """Simulate the ladder of ``args``; write the report, whole or not at all; print table or JSON.

    Workers are those of --worker-model, or ``engines``.
    """
    report = report_of(args)
    if engines is None:
        model, engine = load_worker_model(args.worker_model or args.default_worker_model), None
    else:
        model, engine = engines.model, Engine(engines.policy, engines.unbalanced)
        if args.state_ratio is not None and engines.unbalanced is not None:
            raise InputError(f"--state-ratio is {args.state_ratio:g}; {engines.unbalanced}, so leave it out")
    unbalanced = None if engine is None else engine.unbalanced
    rungs = mechanism_ladder(trajectories, model, choices_of(args), engine)
    if chosen := getattr(args, "runs", None):
        rungs = _chosen(rungs, chosen, unbalanced)
    errors = Console(stderr=True)
    with _progress(errors) as bar:
        task = bar.add_task("", total=len(rungs) * len(trajectories), name="starting")
        place = {rung.settings.name: number for number, rung in enumerate(rungs)}

        def progress(name: str, completed: int) -> None:
            bar.update(task, name=name, completed=place[name] * len(trajectories) + completed)

        comparison = compare(
            trajectories,
            model,
            rungs,
            title=title,
            workload=workload,
            absent_environment_s=getattr(args, "absent_environment_s", None),
            progress=progress,
            deployment=engines,
            unbalanced=unbalanced,
        )
    if report is not None:
        write_whole(report, comparison_page(comparison), "--report")
    if args.json:
        print(json.dumps(as_json(comparison), indent=2))
    else:
        print_comparison(comparison, stdout_console())
        print(f"\nreport: {report}")
    return 0


def report_of(args: argparse.Namespace) -> Path | None:
    """Where the report goes. Raises InputError if it cannot be written there."""
    report: Path | None = args.report or (None if args.json else args.default_report)
    if report is not None:
        require_writable(report, "--report", _inputs(args))
    return report


def _inputs(args: argparse.Namespace) -> list[Path]:
    """The files that a comparison reads, as far as its arguments are files."""
    named = (getattr(args, name, None) for name in ("worker_model", "step_times", "model_config"))
    given = [Path(name) for name in named if name is not None]
    return [*getattr(args, "traces", ()), *given, *(folder / "config.json" for folder in given)]


def _chosen(rungs: Sequence[Rung], names: Sequence[str], unbalanced: str | None) -> list[Rung]:
    found = {rung.settings.name: rung for rung in rungs}
    if unknown := [name for name in names if name not in found]:
        reason = "" if unbalanced is None else f" {unbalanced};"
        raise InputError(f"--runs has {unknown[0]!r};{reason} the runs are {', '.join(found)}")
    return [rung for name, rung in found.items() if name in names]


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.fields[name]:<15}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def print_comparison(comparison: Comparison, console: Console) -> None:
    """The table, then a line for what each run adds."""
    unit = comparison.unit
    console.print(f"{comparison.title}: {comparison.workload}", highlight=False)
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    for name in COLUMNS:
        # A break between the words keeps the table within 80 columns.
        head = f"{name}\n({unit.name})" if name in ("makespan", "L5") else name.replace(" ", "\n")
        table.add_column(head, justify="left" if name == "run" else "right", no_wrap=True)
    for number, row in enumerate(table_rows(comparison)):
        table.add_row(*row, style="bold" if number == len(comparison.runs) - 1 else "")
    console.print()
    # In a narrower window lines wrap, but no number is cut short.
    console.print(table, width=max(TABLE_WIDTH, console.width), crop=False)
    console.print()
    if rows := turn_rows(comparison):
        console.print(_turn_table(rows), width=max(TABLE_WIDTH, console.width), crop=False)
        console.print()
    adds = Table(box=None, padding=(0, 1), pad_edge=False, show_header=False)
    adds.add_column(no_wrap=True)
    adds.add_column()
    for rung in comparison.rungs:
        adds.add_row(rung.settings.name, rung.adds)
    if comparison.unbalanced is not None:
        adds.add_row("balanced-pools", f"left out: {comparison.unbalanced}")
    console.print(adds)
    console.print()
    console.print(
        f"{comparison.verdict} Simulated time on worker model {comparison.model.name}.", highlight=False
    )


def _turn_table(rows: Sequence[Sequence[str]]) -> Table:
    """What the workers tell of their turns beyond the first of each sample, and of their load."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    for name in TURN_COLUMNS:
        table.add_column(name.replace(" ", "\n"), justify="left" if name == "run" else "right", no_wrap=True)
    for number, row in enumerate(rows):
        table.add_row(*row, style="bold" if number == len(rows) - 1 else "")
    return table
