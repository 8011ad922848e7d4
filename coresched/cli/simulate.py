"""`coresched simulate`: the demo's comparison on a user's own traces."""

import argparse
import sys
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from rich.console import Console

from coresched.cli.comparison import report_of, run_comparison
from coresched.cli.device_options import add_device_options, device_variables
from coresched.cli.options import add_output_options, add_run_options
from coresched.cli.parser import CommandParser, add_command, number
from coresched.cli.terminal import stdout_console
from coresched.errors import InputError
from coresched.lab.ladder import NAMES
from coresched.lab.policies import policy_lines
from coresched.lab.simulator.model import DEFAULT_MODEL
from coresched.lab.simulator.workload import build_workload
from coresched.trajectory.reader import load_trajectories
from coresched.trajectory.schema import Trajectory

if TYPE_CHECKING:
    from coresched_engine.fleet.deployment import EngineDeployment

TITLE = "coresched simulate"
FLAGS_HELP = "flags of sglang.launch_server or vllm serve"
ENGINES: Final = {"sglang": "SGLang", "vllm": "vLLM"}
"""Workers that are engines, with what a person calls them."""
NEEDED = ("model_config", "memory", "weights")


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "simulate",
        summary="compare scheduling mechanisms on your own trajectories",
        description="Run recorded trajectories in virtual time: first under the usual defaults, then\n"
        "with one scheduling mechanism added after another. With --worker sglang or vllm the\n"
        "scheduler and the caches of every worker are those of the installed engine, each in\n"
        "a process of its own with a simulated device; the engine's flags go behind --.",
        example="coresched simulate traces.jsonl --workers 2 --environment-concurrency 3\n"
        "  coresched simulate traces.jsonl --worker sglang --model-config config.json \\\n"
        "    --memory 80GiB --weights 50GiB -- --context-length 65536\n"
        "  coresched simulate traces.jsonl --worker vllm --model-config config.json \\\n"
        "    --memory 80GiB --weights 50GiB -- --max-model-len 65536",
    )
    parser.add_argument(
        "traces", nargs="+", type=Path, metavar="TRACE", help="trajectories: .jsonl, .jsonl.gz, .jsonl.zst"
    )
    parser.add_argument(
        "--worker",
        choices=("model", *ENGINES),
        default="model",
        help="what serves the turns: the simulator's own model of a worker, or an engine's own scheduler "
        "(default %(default)s)",
    )
    add_run_options(parser, workers=2, environment_concurrency=None, worker_model=DEFAULT_MODEL)
    parser.add_argument(
        "--absent-environment-s",
        type=number(at_least=0),
        metavar="S",
        help="assume this duration where a trace does not have one (default: refuse the trace)",
    )
    parser.add_argument(
        "--runs",
        type=run_names,
        metavar="NAME,...",
        help=f"only these runs, the first of which is the reference (default: {','.join(NAMES)})",
    )
    parser.add_argument(
        "--list-policies",
        action=ListPolicies,
        nargs=0,
        help="say what each policy of the simulator does, routers of other projects among them, and exit",
    )
    engine = parser.add_argument_group("the engine (--worker sglang, vllm)")
    add_device_options(engine, required=False)
    parser.take_flags(FLAGS_HELP)
    add_output_options(parser, report="coresched-report.html")
    parser.set_defaults(run=run)


class ListPolicies(argparse.Action):
    """Needs no trace, as --help does not."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        width = max(stdout_console().width, 60)
        for line in policy_lines():
            if sys.stdout.isatty():  # in a pipe, where one looks for a name, whole
                rule = " " * (line.rfind("  ") + 2)
                line = textwrap.fill(line, width, subsequent_indent=rule, break_on_hyphens=False)
            print(line)
        parser.exit()


def run_names(text: str) -> list[str]:
    """Names of runs, with commas between them."""
    names = text.split(",")
    for name in names:
        if name not in NAMES:
            raise argparse.ArgumentTypeError(f"{name[:40]!r} is no run; there are {', '.join(NAMES)}")
    return names


def run(args: argparse.Namespace) -> int:
    _refuse_options_of_the_other(args)
    trajectories = load_trajectories(args.traces)
    names = ", ".join(path.name for path in args.traces)
    workload = f"{len(trajectories)} trajectories of {names}"
    if args.worker in ENGINES:
        return _run_on_engines(args, trajectories, workload)
    return run_comparison(args, trajectories, title=TITLE, workload=workload)


def _refuse_options_of_the_other(args: argparse.Namespace) -> None:
    if args.worker not in ENGINES:
        fix = "add --worker sglang or --worker vllm"
        for name in (*NEEDED, "step_times"):
            if getattr(args, name) is not None:
                raise InputError(f"{_option(name)} is given, which is for engines; {fix}")
        if args.flags:
            raise InputError(f"{args.flags[0]} stands behind --, as an engine's flags do; {fix}")
        return
    for name in NEEDED:
        if getattr(args, name) is None:
            raise InputError(f"{_option(name)} is not given; --worker {args.worker} needs it")
    if args.worker_model is not None:
        raise InputError(
            f"--worker-model is {args.worker_model}; with --worker {args.worker} the pools are "
            f"{ENGINES[args.worker]}'s: give --step-times for the times alone"
        )


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _run_on_engines(args: argparse.Namespace, trajectories: Sequence[Trajectory], workload: str) -> int:
    # Here, so that the other workers need no adapter.
    from coresched_engine.fleet.processes import ProcessEndedError

    report_of(args)
    # What is wrong with the traces is said before an engine is loaded.
    build_workload(trajectories, page_tokens=1, absent_environment_s=args.absent_environment_s)
    try:
        with ExitStack() as stack:
            loading = f"loading {ENGINES[args.worker]}, and sizing the pools of one worker ..."
            with Console(stderr=True).status(loading):
                engines = stack.enter_context(_deployment(args))
            return run_comparison(args, trajectories, title=TITLE, workload=workload, engines=engines)
    except ProcessEndedError as error:
        for line in error.said:
            print(line, file=sys.stderr)
        print(f"{TITLE}: {error}", file=sys.stderr)
        return 1


def _deployment(args: argparse.Namespace) -> "AbstractContextManager[EngineDeployment]":
    device, called = device_variables(args)
    ordered = bool({"routing-prefix", "coordinated"} & set(args.runs or NAMES))
    if args.worker == "vllm":
        from coresched_vllm.fleet.deployment import vllm_deployment

        return vllm_deployment(args.model_config, device, args.flags, called=called, routing_prefix=ordered)
    from coresched_sglang.names import ROUTING_PREFIX
    from coresched_simdevice.fleet.deployment import sglang_deployment

    policies = [ROUTING_PREFIX] if ordered else []
    return sglang_deployment(args.model_config, device, args.flags, called=called, policies=policies)
