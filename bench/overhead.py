"""`python -m bench overhead`: the scheduler's own cost an operation, beside its peers."""

import argparse
from collections.abc import Iterator

from bench.cases import Case
from bench.cases.caas import caas_cases
from bench.cases.lbch import lbch_cases
from bench.cases.rp import rp_cases
from bench.machine import this_machine
from bench.progress import announce, clear
from bench.results import Report, Row, as_json, print_report, time_text
from bench.spread import spread_of
from bench.timing import FULL, QUICK, Effort, seconds_an_operation
from coresched.cli.parser import CommandParser, add_command

NOTES = (
    "median: CPU time of an operation, the benchmark's own loop included.",
    "IQR: interquartile range over median. ratio: peer's median over ours.",
    "python-twin: the readable specification of the core, not written for speed.",
)


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "overhead",
        summary="the scheduler's own cost an operation, beside its peers",
        description="Time the compiled core and its peers: routing (lbch), ordering a waiting queue\n"
        "(rp) and the environment queue (caas).",
        example="python -m bench overhead --quick",
    )
    parser.add_argument(
        "--quick", action="store_true", help="few, short repeats: to see that it runs, not to quote"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    effort = QUICK if args.quick else FULL
    machine = this_machine()
    rows = []
    for case in all_cases():
        announce(f"{case.name}, n = {case.n}")
        rows.extend(measure(case, effort))
    clear()
    report = Report(args.command_line, machine, effort.repeats, rows)
    if args.json:
        print(as_json(report))
    else:
        print_report(report, "median", lambda spread: time_text(spread.median), NOTES)
    return 0


def all_cases() -> Iterator[Case]:
    yield from lbch_cases()
    yield from rp_cases()
    yield from caas_cases()


def measure(case: Case, effort: Effort) -> list[Row]:
    """A row for each peer; all subjects of the case are timed in turns."""
    ours, *theirs = seconds_an_operation([case.ours, *case.peers.values()], effort)
    return [
        Row(case.name, case.n, peer, spread_of(ours), spread_of(samples))
        for peer, samples in zip(case.peers, theirs, strict=True)
    ]
