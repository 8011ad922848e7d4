"""`python -m bench advised`: what `coresched advise` advises beside the paper's method."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from rich.table import Table

from bench.advised.cases import cases_of
from bench.advised.claims import Claim, claims
from bench.advised.trials import Trial, try_all
from bench.machine import this_machine
from bench.progress import announce, clear
from bench.results import heading, print_page, today
from bench.rivals.options import add_case_options, check_recorded_options, seeds_of
from bench.rivals.tables import new_table, percents
from coresched import __version__
from coresched.cli.parser import CommandParser, add_command
from coresched.cli.terminal import stdout_console

SEEDS = 20

NOTES = (
    "The advice is searched on one batch, with the paper's method as what stands there today, and",
    "judged on other batches (of a recorded one: other orders). min: median makespan with the paper's",
    "method. saved: share of that, seed by seed, with 95 % intervals: of the mean (bootstrap) and of the",
    "median. worst: seed. noise: how far the paper's method is from itself in another submission order",
    "of the same batch, on the worst of as many seeds. C_S, r, coordinated: see docs/advise.md.",
)


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "advised",
        summary="what `coresched advise` advises beside the paper's method",
        description="Let `coresched advise` search on one batch of each of the paper's workloads, with the\n"
        "paper's method as it is today, and judge what it advises on other batches.",
        example="python -m bench advised --case SWE --seeds 20",
    )
    add_case_options(parser, SEEDS)
    parser.add_argument(
        "--without-history",
        action="store_true",
        help="advise as without a history file; with one, expected lengths are off by a lognormal factor",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    seeds = seeds_of(args)
    check_recorded_options(args)
    cases = cases_of(
        args.case or (), args.trajectories, args.environment_concurrency, args.absent_environment_s
    )
    machine = this_machine()
    print(f"{len(cases)} cases, up to a minute each and core", file=sys.stderr)
    trials = try_all(
        cases, seeds, not args.without_history, lambda done, of: announce(f"{done} of {of} cases")
    )
    clear()
    found = claims(trials)
    if args.json:
        told = {
            "command": args.command_line,
            "date": today(),
            "version": __version__,
            "machine": asdict(machine),
            "seeds": seeds,
            "rows": [_row(trial) for trial in trials],
            "claims": [asdict(claim) for claim in found],
        }
        print(json.dumps(told, indent=1))
        return 0
    console = stdout_console()
    print_page(console, heading(args.command_line, machine), _table(trials), notes=NOTES)
    console.print()
    for line in _lines(trials, found):
        console.print(line, soft_wrap=True)
    return 0


def _row(trial: Trial) -> dict[str, Any]:
    return {
        "case": trial.case.name,
        "leave_as_it_is": trial.leave,
        "advised": trial.said,
        "settings": asdict(trial.advised),
        "makespan_s": median(trial.makespans_s),
        "method_makespan_s": median(trial.method_s),
        "saved": asdict(trial.saved),
        "noise": trial.noise,
        "coordinated_saved": trial.coordinated_saved,
        "searched_s": trial.searched_s,
        "searched_runs": trial.searched_runs,
        "makespans_s": list(trial.makespans_s),
        "method_makespans_s": list(trial.method_s),
    }


def _table(trials: Sequence[Trial]) -> Table:
    shown = new_table(
        "what is advised, against the paper's method",
        "",
        "min",
        "saved, mean %",
        "median %",
        "worst",
        "noise",
        "coord.",
        "CPU s",
    )
    for trial in trials:
        saved = trial.saved
        mean = f"{saved.mean * 100:+.1f} ({saved.mean_low * 100:+.1f} to {saved.mean_high * 100:+.1f})"
        shown.add_row(
            trial.case.name,
            f"{median(trial.method_s) / 60:.1f}",
            mean,
            percents(saved.median),
            f"{saved.worst * 100:+.1f}",
            f"{trial.noise * 100:.1f}",
            f"{trial.coordinated_saved * 100:+.1f}",
            f"{trial.searched_s:.0f}",
        )
    return shown


def _lines(trials: Sequence[Trial], found: Sequence[Claim]) -> Iterator[str]:
    for trial in trials:
        yield f"{trial.case.name}: {trial.said}."
    yield ""
    for claim in found:
        yield f"{claim.claim}: {'yes' if claim.holds else 'NO'}; {claim.detail}."
