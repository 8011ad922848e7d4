"""`coresched simulate`: the demo's comparison on a user's own traces."""

import argparse
from pathlib import Path

from coresched.cli.comparison import run_comparison
from coresched.cli.options import add_output_options, add_run_options
from coresched.cli.parser import CommandParser, add_command, number
from coresched.lab.simulator.model import DEFAULT_MODEL
from coresched.trajectory.reader import load_trajectories


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "simulate",
        summary="compare scheduling mechanisms on your own trajectories",
        description="Run recorded trajectories in virtual time: first under the usual defaults, then with\n"
        "one scheduling mechanism added after another.",
        example="coresched simulate traces.jsonl --workers 2 --environment-concurrency 3",
    )
    parser.add_argument(
        "traces", nargs="+", type=Path, metavar="TRACE", help="trajectories: .jsonl, .jsonl.gz, .jsonl.zst"
    )
    add_run_options(parser, workers=2, environment_concurrency=None, worker_model=DEFAULT_MODEL)
    parser.add_argument(
        "--absent-environment-s",
        type=number(at_least=0),
        metavar="S",
        help="assume this duration where a trace does not have one (default: refuse the trace)",
    )
    add_output_options(parser, report="coresched-report.html")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    trajectories = load_trajectories(args.traces)
    names = ", ".join(path.name for path in args.traces)
    return run_comparison(
        args,
        trajectories,
        title="coresched simulate",
        workload=f"{len(trajectories)} trajectories of {names}",
    )
