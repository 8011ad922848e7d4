"""`python -m bench rivals`: every policy of every kind on the same batches, beside the paper's method."""

import argparse
import json

from bench.machine import this_machine
from bench.progress import clear
from bench.results import heading, print_page
from bench.rivals.kinds import KINDS, comparisons
from bench.rivals.options import add_options, cases_of, progress, recorded_of, runs_of, seeds_of
from bench.rivals.runs import run_all
from bench.rivals.tables import as_json, rows_of, table, verdict
from coresched.cli.parser import CommandParser, add_command
from coresched.cli.terminal import stdout_console
from coresched.errors import InputError
from coresched.lab.policies import POLICIES

SEEDS = 10

NOTES = (
    "Each seed is another batch (recorded ones: the same in another order), with",
    "other labels. min: makespan in minutes. % longer: than with the base's own",
    "policy (bold) on the same seed, median, 95 % interval. Medians: reuse,",
    "imbalance of requests, turns served elsewhere than the one before, makespan",
    "over its lower bound. plain defaults: FCFS and cache-aware, same C_S and r.",
)


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "rivals",
        summary="every policy of the simulator beside the paper's method",
        description="Simulate the paper's four workloads on one, two and four workers, two generated ones\n"
        "on workers with little memory, and recorded ones, under every policy, paired seed by seed.",
        example="python -m bench rivals --kind routing --seeds 20",
    )
    parser.add_argument(
        "--kind",
        action="append",
        choices=KINDS,
        metavar="KIND",
        help=f"this kind of policy, of {', '.join(KINDS)}; repeat for more (default all)",
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="POLICY",
        help="this policy, beside the base's own of its kind; repeat for more (default all)",
    )
    add_options(parser, SEEDS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    names = {policy.name for policy in POLICIES}
    for name in args.only or ():
        if name not in names:
            raise InputError(f"--only {name} is no policy; `coresched simulate --list-policies` lists them")
    seeds = seeds_of(args)
    cases = cases_of(args)
    wanted = list(comparisons(cases, args.kind or KINDS, args.only))
    if not wanted:
        raise InputError("--kind and --only leave nothing to compare; give policies of the kind")
    machine = this_machine()
    tasks = [(one.case, settings) for one in wanted for settings in one.settings.values()]
    results = run_all(tasks, range(seeds), progress(runs_of(tasks, seeds)))
    clear()
    if args.json:
        rows = [row for one in wanted for row in rows_of(one, results)]
        print(json.dumps(as_json(args.command_line, machine, seeds, recorded_of(cases), rows), indent=1))
        return 0
    console = stdout_console()
    tables = [table(one, results) for one in wanted]
    print_page(console, heading(args.command_line, machine), *tables, notes=NOTES)
    for one in wanted:
        console.print(verdict(one, results))
    return 0
