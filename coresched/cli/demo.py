"""`coresched demo`: the main job on embedded defaults."""

import argparse

from coresched.cli.comparison import run_comparison
from coresched.cli.options import add_output_options, add_run_options
from coresched.cli.parser import CommandParser, add_command, count
from coresched.errors import InputError
from coresched.trajectory.workloads import demo_workload

LIVE_SAMPLES = 24
SIMULATED = (
    *("workers", "environment_concurrency", "worker_model", "sample_concurrency", "state_ratio"),
    *("label_capacity", "load_bound", "band_s", "bucket_s"),
)
"""Options that a real engine has no use for."""


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
    live = parser.add_argument_group("a real engine, in the same environment")
    live.add_argument(
        "--engine",
        choices=["vllm"],
        help="instead of virtual time: boot two vLLM servers of a tiny model, made on the spot, and run part "
        "of the batch on them, scaled down; takes minutes",
    )
    live.add_argument(
        "--samples", type=count, metavar="N", help=f"trajectories to run there (default {LIVE_SAMPLES})"
    )
    live.add_argument("--port", type=count, metavar="PORT", help="of the first server (default: free ones)")
    add_output_options(parser, report="coresched-demo.html")
    defaults = {name: parser.get_default(name) for name in SIMULATED}
    parser.set_defaults(run=run, simulated_defaults=defaults)


def run(args: argparse.Namespace) -> int:
    if args.engine is not None:
        for name, default in args.simulated_defaults.items():
            if getattr(args, name) != default:
                raise InputError(
                    f"--{name.replace('_', '-')} shapes the simulated demo; leave it out with --engine"
                )
        args.samples = args.samples or LIVE_SAMPLES
        from coresched.cli.vllm_demo import run_on_vllm

        return run_on_vllm(args)
    for name in ("samples", "port"):
        if getattr(args, name) is not None:
            raise InputError(f"--{name} is for a real engine; add --engine vllm, or leave it out")
    trajectories = demo_workload()
    return run_comparison(
        args,
        trajectories,
        title="coresched demo",
        workload=f"{len(trajectories)} SWE-like trajectories shipped with the package",
    )
