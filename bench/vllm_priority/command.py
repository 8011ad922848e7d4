"""`python -m bench vllm-priority`: what one scheduling pass costs inside vLLM, by the waiting order."""

import argparse
import sys

from bench.machine import this_machine
from bench.measuring import MeasuringFailedError, Program
from bench.progress import announce, clear
from bench.vllm_priority.results import as_json, print_report, report_of
from bench.vllm_python import environment
from coresched.cli.parser import CommandParser, add_command

PROGRAM = Program("bench.vllm_priority.measure", "--vllm-python", "vLLM", environment)


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "vllm-priority",
        summary="a scheduling pass on vLLM's own requests and block pool",
        description="Time one scheduling pass of vLLM with each order of its waiting queue, on its own\n"
        "Request objects and its own block pool, as the queue grows. Written for vLLM 0.32; no GPU.",
        example="python -m bench vllm-priority --vllm-python .venv-vllm/bin/python",
    )
    parser.add_argument(
        "--vllm-python",
        metavar="PATH",
        required=True,
        help="the Python of an environment that has vllm and coresched",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="two queue lengths, few repeats: to see that it runs, not to quote",
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    python = PROGRAM.require(args.vllm_python)
    machine = this_machine()
    try:
        found = PROGRAM.measured(python, is_quick=args.quick, announce=announce)
    except MeasuringFailedError as error:
        clear()
        print(f"python -m bench vllm-priority: vLLM's environment failed: {error}", file=sys.stderr)
        return 1
    clear()
    report = report_of(args.command_line, machine, found)
    if args.json:
        print(as_json(report))
    else:
        print_report(report)
    return 0
