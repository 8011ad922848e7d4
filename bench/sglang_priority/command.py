"""`python -m bench sglang-priority`: what one priority calculation costs inside SGLang."""

import argparse
import sys
from pathlib import Path

from bench.machine import this_machine
from bench.measuring import MeasuringFailedError, Program
from bench.progress import announce, clear
from bench.sglang_priority.page import growth_page
from bench.sglang_priority.results import as_json, print_report, report_of
from bench.sglang_python import environment
from coresched.cli.parser import CommandParser, add_command
from coresched.files import require_writable, write_whole

PROGRAM = Program("bench.sglang_priority.measure", "--sglang-python", "SGLang", environment)


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "sglang-priority",
        summary="a priority calculation on SGLang's own requests and radix tree",
        description="Time one priority calculation of SGLang's scheduler under each policy, on its own Req\n"
        "objects and its own radix tree, as the waiting queue grows. Written for SGLang 0.5.23; no GPU.",
        example="python -m bench sglang-priority --sglang-python .venv-sglang/bin/python",
    )
    parser.add_argument(
        "--sglang-python",
        metavar="PATH",
        required=True,
        help="the Python of an environment that has sglang and coresched",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="two queue lengths, few repeats: to see that it runs, not to quote",
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.html", help="draw how the cost grows with the queue"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    python = PROGRAM.require(args.sglang_python)
    if args.plot is not None:
        require_writable(args.plot, "--plot")
    machine = this_machine()
    try:
        found = PROGRAM.measured(python, is_quick=args.quick, announce=announce)
    except MeasuringFailedError as error:
        clear()
        print(f"python -m bench sglang-priority: SGLang's environment failed: {error}", file=sys.stderr)
        return 1
    clear()
    report = report_of(args.command_line, machine, found)
    if args.plot is not None:
        write_whole(args.plot, growth_page(report), "--plot")
    if args.json:
        print(as_json(report))
    else:
        print_report(report)
    return 0
