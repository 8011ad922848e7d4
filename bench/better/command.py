"""`python -m bench better`: what beats the paper's method, all of it, without each part, and each alone."""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from bench.better.parts import PARTS
from bench.better.trials import METHOD, Trial, Verdict, try_all, wanted
from bench.machine import this_machine
from bench.progress import clear
from bench.results import heading, print_page
from bench.rivals.options import add_options, cases_of, progress, recorded_of, runs_of, seeds_of
from bench.rivals.tables import as_json, new_table, percents, summary
from coresched.cli.parser import CommandParser, add_command
from coresched.cli.terminal import stdout_console

SEEDS = 20

NOTES = (
    "On seeds that no choice of a part has seen. min: makespan in minutes. % longer:",
    "than with the paper's method on the same seed, median and 95 % interval. brings:",
    "what the part that is left out saves beside the others. reuse, x bound: medians.",
    "A part is kept if it surely saves something in some case, and in none surely",
    "costs more than 0.5 %.",
)


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "better",
        summary="what beats the paper's method, part by part",
        description="Simulate the batches of `rivals` under the paper's method, under all that is better\n"
        "than it, without each part of that, and with each part alone, paired seed by seed.",
        example="python -m bench better --seeds 20",
    )
    add_options(parser, SEEDS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    seeds, cases = seeds_of(args), cases_of(args)
    machine = this_machine()
    trials, verdicts = try_all(cases, seeds, progress(runs_of(wanted(cases), seeds)))
    clear()
    if args.json:
        told = as_json(args.command_line, machine, seeds, recorded_of(cases), map(_row, trials))
        told["verdicts"] = [{**asdict(verdict), "about": PARTS[verdict.part]} for verdict in verdicts]
        print(json.dumps(told, indent=1))
        return 0
    console = stdout_console()
    print_page(console, heading(args.command_line, machine), *_tables(trials), notes=NOTES)
    for verdict in verdicts:
        console.print(verdict_text(verdict))
    return 0


def verdict_text(verdict: Verdict) -> str:
    """One line."""
    word = "kept" if verdict.kept else "not kept"
    return (
        f"{verdict.part}: {word}; surely saves in: {', '.join(verdict.helps) or 'no case'}; "
        f"surely costs in: {', '.join(verdict.costs) or 'no case'}."
    )


def _row(trial: Trial) -> dict[str, Any]:
    return {
        "case": trial.case.name,
        "variant": trial.variant,
        "parts": sorted(trial.parts),
        **summary(trial.runs),
        "longer": None if trial.variant == METHOD else asdict(trial.longer),
        "part": trial.part,
        "brings": None if trial.brings is None else asdict(trial.brings),
        "makespans_s": [run.makespan_s for run in trial.runs],
    }


def _tables(trials: Sequence[Trial]) -> Iterator[Table]:
    for name in dict.fromkeys(trial.case.name for trial in trials):
        table = new_table(name, "", "min", "% longer", "brings %", "reuse", "x bound")
        for trial in (trial for trial in trials if trial.case.name == name):
            row = summary(trial.runs)
            table.add_row(
                trial.variant,
                f"{(row['makespan_s'] or 0) / 60:.1f}",
                "" if trial.variant == METHOD else percents(trial.longer),
                "" if trial.brings is None else percents(trial.brings),
                f"{(row['cache_reuse'] or 0) * 100:.1f}",
                f"{row['of_bound']:.2f}",
            )
        yield table
