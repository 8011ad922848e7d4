"""`python -m bench overhead`: the scheduler's own cost an operation, beside its peers."""

import argparse
import gc
from pathlib import Path

from bench.beside import beside_at_ten_thousand, beside_table
from bench.cases import Case, Scale
from bench.cases.every import every_case
from bench.floor import compiler
from bench.growth import growth_as_json, growth_table, growths
from bench.instructions import Counts, instructions_an_operation, of_row, require_callgrind
from bench.machine import this_machine
from bench.overhead_page import overhead_page
from bench.progress import announce, clear
from bench.results import Report, Row, as_json, print_report, time_text
from bench.spread import spread_of
from bench.timing import FULL, QUICK, Effort, seconds_an_operation
from coresched.cli.parser import CommandParser, add_command
from coresched.files import require_writable, write_whole

NOTES = (
    "median: CPU time of an operation, the benchmark's own loop included.",
    "IQR: interquartile range over median. ratio: peer's median over ours.",
    "python-twin: the readable specification of the core, not written for speed.",
    "floor: the least that the decision takes, compiled and without Python.",
    "Second table: n^e fitted over the sizes, and the factor for ten times the size.",
    "Last table: at about 10,000 elements (of LBCH: points on the ring), what the",
    "twin and the fastest Python take over ours, and ours over the floor.",
)
NO_COMPILER = "Left out: the floor, for want of a C++ compiler (c++, g++ or clang++)."
COUNTED = "instr.: machine instructions an operation, by callgrind, at one size a case."


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "overhead",
        summary="the scheduler's own cost an operation, beside its peers",
        description="Time the compiled core and its peers as they grow: routing (lbch), ordering a waiting\n"
        "queue (rp, residency) and the environment queue (caas), each beside the least it could take.",
        example="python -m bench overhead --quick",
    )
    parser.add_argument(
        "--quick", action="store_true", help="few, short repeats: to see that it runs, not to quote"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.html", help="draw how each cost grows with the size"
    )
    parser.add_argument(
        "--instructions", action="store_true", help="count machine instructions too, under callgrind; minutes"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    effort, scale = (QUICK, Scale.QUICK) if args.quick else (FULL, Scale.FULL)
    if args.plot is not None:
        require_writable(args.plot, "--plot")
    counts: Counts = {}
    if args.instructions:
        require_callgrind()
        announce("instructions, under callgrind")
        counts = instructions_an_operation()
    machine = this_machine()
    rows = []
    for case in every_case(scale):
        announce(f"{case.name}, n = {case.n:,}")
        rows.extend(measure(case, effort, counts))
    clear()
    report = Report(args.command_line, machine, effort.repeats, rows)
    found = growths(rows)
    if args.plot is not None:
        write_whole(args.plot, overhead_page(report), "--plot")
    if args.json:
        print(as_json(report, growth=[growth_as_json(growth) for growth in found]))
        return 0
    print_report(
        report,
        "median",
        lambda spread: time_text(spread.median),
        (*NOTES, *([COUNTED] if counts else []), *([] if compiler() else [NO_COMPILER])),
        [growth_table(found), beside_table(beside_at_ten_thousand(rows))],
    )
    return 0


def measure(case: Case, effort: Effort, counts: Counts) -> list[Row]:
    """A row for each peer; all subjects of the case are timed in turns."""
    gc.collect()
    gc.freeze()  # the collection before each timing need not walk a million jobs
    try:
        ours, *theirs = seconds_an_operation([case.ours, *case.peers.values()], effort)
    finally:
        gc.unfreeze()
    return [
        Row(case.name, case.n, peer, spread_of(ours), spread_of(samples), of_row(counts, case, peer))
        for peer, samples in zip(case.peers, theirs, strict=True)
    ]
