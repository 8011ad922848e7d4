"""`python -m bench ray`: request routers in front of replicas of a real Ray Serve on this machine."""

import argparse
import sys

from bench.machine import this_machine
from bench.measuring import MeasuringFailedError, Program
from bench.progress import announce, clear
from bench.ray_python import environment
from bench.ray_serve.results import as_json, print_report, report_of
from coresched.cli.parser import CommandParser, add_command

PROGRAM = Program("bench.ray_serve.measure", "--ray-python", "Ray", environment)


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "ray",
        summary="our request routers in Ray Serve beside its own",
        description="Place held requests on three replicas of a real Ray Serve by our routers and by\n"
        "Serve's, let trajectories take turns, and time calls. Written for Ray 2.60; no GPU.",
        example="python -m bench ray --ray-python .venv-ray/bin/python",
    )
    parser.add_argument(
        "--ray-python",
        metavar="PATH",
        required=True,
        help="the Python of an environment that has ray[serve] and coresched",
    )
    parser.add_argument(
        "--quick", action="store_true", help="few timed calls: to see that it runs, not to quote"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    python = PROGRAM.require(args.ray_python)
    machine = this_machine()
    try:
        found = PROGRAM.measured(python, is_quick=args.quick, announce=announce)
    except MeasuringFailedError as error:
        clear()
        print(f"python -m bench ray: Ray's environment failed: {error}", file=sys.stderr)
        return 1
    clear()
    report = report_of(args.command_line, machine, found)
    if args.json:
        print(as_json(report))
    else:
        print_report(report)
    return 0
