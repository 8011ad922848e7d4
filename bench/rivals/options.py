"""Options of the commands that compare simulated runs, and how they show that they are at it."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from bench.progress import announce
from bench.rivals.cases import Case, recorded_cases, shipped_cases, trajectories
from bench.rivals.runs import estimate_text
from coresched.cli.parser import CommandParser, count, number
from coresched.errors import InputError
from coresched.lab.advice.judgement import LEAST_SEEDS

QUICK: Final = ("WideSearch, W 2", "MCP-Atlas, W 1, C_E 3")


def add_options(parser: CommandParser, seeds: int) -> None:
    add_case_options(parser, seeds)
    parser.add_argument(
        "--quick", action="store_true", help="two cases, six seeds, if not told: to see that it runs"
    )


def add_case_options(parser: CommandParser, seeds: int) -> None:
    """Which cases, on how many seeds, and whether as JSON."""
    parser.add_argument(
        "--seeds",
        type=count,
        metavar="N",
        help=f"seeds, at least {LEAST_SEEDS} (default {seeds})",
    )
    parser.set_defaults(usual_seeds=seeds, quick=False)
    parser.add_argument(
        "--case",
        action="append",
        metavar="NAME",
        help='cases whose name begins so, "SWE, W 2" or "SWE"; repeat for more (default all)',
    )
    parser.add_argument(
        "--trajectories",
        nargs="+",
        default=(),
        metavar="FILE",
        help="recorded batches to run too, each file one, on memory for a third of it",
    )
    parser.add_argument(
        "--environment-concurrency",
        type=count,
        metavar="C_E",
        help="for the recorded batches (default no cap)",
    )
    parser.add_argument(
        "--absent-environment-s",
        type=number(at_least=0),
        metavar="SECONDS",
        help="stands for environment durations that were not recorded",
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


def seeds_of(args: argparse.Namespace) -> int:
    """How many. Raises InputError for too few."""
    if args.seeds is None:
        return LEAST_SEEDS if args.quick else int(args.usual_seeds)
    if args.seeds < LEAST_SEEDS:
        raise InputError(f"--seeds {args.seeds} is too few for an interval; give at least {LEAST_SEEDS}")
    return int(args.seeds)


def cases_of(args: argparse.Namespace) -> list[Case]:
    """Those that the options ask for. Raises InputError for files that cannot be run and names of no case."""
    check_recorded_options(args)
    recorded = [*recorded_cases(args.trajectories, args.environment_concurrency, args.absent_environment_s)]
    every = [*shipped_cases(), *recorded]
    names = args.case or ([*QUICK, *(case.name for case in recorded)] if args.quick else [""])
    for name in names:
        if not any(case.name.startswith(name) for case in every):
            known = ", ".join(f'"{case.name}"' for case in every)
            raise InputError(f"--case {name!r} begins no case; there are {known}")
    return [case for case in every if case.name.startswith(tuple(names))]


def check_recorded_options(args: argparse.Namespace) -> None:
    """Raises InputError for options of recorded batches where there are none."""
    for option in ("environment_concurrency", "absent_environment_s"):
        if not args.trajectories and getattr(args, option) is not None:
            written = option.replace("_", "-")
            raise InputError(f"--{written} is for recorded batches; give --trajectories too, or leave it out")


def recorded_of(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """How large the recorded batches are."""
    sources = dict.fromkeys(case.source for case in cases if case.source.files)
    return [
        {
            "name": source.name,
            "trajectories": len(found := trajectories(source, 0)),
            "turns": sum(len(one.turns) for one in found),
        }
        for source in sources
    ]


def progress(runs: int) -> Callable[[int, int], None]:
    """Says at once how long it may take, and then, in a terminal, how long is left by what is done."""
    print(estimate_text(runs), file=sys.stderr)
    began = time.monotonic()

    def done(finished: int, of: int) -> None:
        left = (time.monotonic() - began) / finished * (of - finished)
        announce(f"{finished} of {of} runs, about {left / 60:.0f} min left")

    return done


def runs_of(wanted: Sequence[object], seeds: int) -> int:
    """What is wanted twice runs once."""
    return len(set(wanted)) * seeds
