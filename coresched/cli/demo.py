"""`coresched demo`: the main job on embedded defaults."""

import argparse

from coresched.cli.comparison import run_comparison
from coresched.cli.options import add_output_options, add_run_options
from coresched.cli.parser import CommandParser, add_command
from coresched.trajectory.workloads import demo_workload


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "demo",
        summary="see coordinated scheduling against the usual defaults, on a shipped workload",
        description="Run a shipped batch of agent trajectories in virtual time: first under the usual\n"
        "defaults, then with one scheduling mechanism added after another. Needs no GPU and no\n"
        "network.",
        example="coresched demo",
    )
    add_run_options(parser, workers=2, environment_concurrency=32, worker_model="h20-tp4-hybrid-tight")
    add_output_options(parser, report="coresched-demo.html")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    trajectories = demo_workload()
    return run_comparison(
        args,
        trajectories,
        title="coresched demo",
        workload=f"{len(trajectories)} SWE-like trajectories shipped with the package",
    )
