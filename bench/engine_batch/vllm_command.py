"""`python -m bench vllm-batch`: a batch on two real vLLM servers, as it comes and coordinated."""

import argparse
import subprocess
import tempfile
from pathlib import Path

from bench.engine_batch.options import add_batch_options
from bench.engine_batch.setups import COORDINATED, STOCK
from bench.machine import this_machine
from coresched.cli.parser import CommandParser, add_command, count, number
from coresched.errors import InputError
from coresched.trajectory.reader import load_trajectories
from coresched.trajectory.scaling import scaled
from coresched.trajectory.workloads import demo_workload

SETUPS = (STOCK, COORDINATED)
LONGEST_CONTEXT = 4_096
QUICK_SAMPLES = 4


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "vllm-batch",
        summary="a batch on two real vLLM servers, as it comes and coordinated",
        description="Replay a batch, scaled down, against two vLLM servers of a tiny hybrid model on this\n"
        "machine: under one limit and a round-robin router with vLLM's own scheduler, and with\n"
        "coresched's service and routing-prefix. Boots four servers, which takes 6 GB of memory and\n"
        "a few minutes. Linux only.",
        example="python -m bench vllm-batch --vllm-python ~/vllm/bin/python --rounds 5",
    )
    add_batch_options(
        parser, "vllm", "those that fit", samples=12, turns_over=5, environment_concurrency=3, rounds=5
    )
    parser.add_argument(
        "--tokens-over",
        type=count,
        default=6,
        metavar="N",
        help="prompts, replies and responses have 1/N of their tokens, rounded up (default %(default)s)",
    )
    parser.add_argument(
        "--seconds-over",
        type=number(above=0),
        default=10.0,
        metavar="X",
        help="environment stages, B and D_I are 1/X as long (default %(default)g)",
    )
    parser.add_argument(
        "--sample-concurrency",
        type=count,
        default=6,
        metavar="C_S",
        help="samples at once where it is coordinated (default %(default)s)",
    )
    parser.add_argument(
        "--hidden-size",
        type=count,
        default=256,
        metavar="N",
        help="of the model, a multiple of 64: the larger, the more a prompt token costs beside vLLM's own "
        "work of a step (default %(default)s)",
    )
    parser.add_argument(
        "--blocks",
        type=count,
        default=48,
        metavar="N",
        help="of a server's block pool, 128 tokens each (default %(default)s)",
    )
    parser.add_argument(
        "--label-capacity", type=count, default=8, metavar="C_A", help="of a server (default %(default)s)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from coresched_vllm.local.flags import Pool
    from coresched_vllm.local.tiny_model import Shape

    from bench.engine_batch.carried_out import carry_out
    from bench.engine_batch.runs import Comparison
    from bench.engine_batch.vllm_servers import VLLM
    from bench.gateways.processes import check_system

    check_system()
    if args.hidden_size % 64:
        raise InputError(f"--hidden-size is {args.hidden_size}; it must be a multiple of 64")
    samples, rounds = (QUICK_SAMPLES, 1) if args.quick else (args.samples, args.rounds)
    version = vllm_version(args.vllm_python)
    small = scaled(
        demo_workload() if args.trace is None else load_trajectories(args.trace),
        turns_over=args.turns_over,
        tokens_over=args.tokens_over,
        seconds_over=args.seconds_over,
    )
    workload = [one for one in small if one.final_context_tokens <= LONGEST_CONTEXT][:samples]
    if not workload:
        raise InputError(
            f"no trajectory ends within {LONGEST_CONTEXT:,} tokens; raise --turns-over or --tokens-over"
        )
    machine = this_machine()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch, "replays")
        folder.mkdir(exist_ok=True)
        kind = VLLM(
            python=args.vllm_python,
            version=version,
            shape=Shape(hidden_size=args.hidden_size, layers="ccacca"),
            pool=Pool(args.blocks, 4, 512, LONGEST_CONTEXT),
            sample_concurrency=args.sample_concurrency,
            label_capacity=args.label_capacity,
            folder=Path(scratch),
        )
        comparison = Comparison(
            kind, SETUPS, workload, args.environment_concurrency, seconds_over=args.seconds_over
        )
        return carry_out(args, comparison, rounds, folder, machine)


LOOK = "import coresched, vllm.version; print(vllm.version.__version__)"


def vllm_version(python: str) -> str:
    """Of an interpreter that has vLLM and coresched. Raises InputError for another."""
    try:
        done = subprocess.run([python, "-c", LOOK], capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"--vllm-python {python!r} cannot be run: {error}") from None
    if done.returncode or not done.stdout.strip():
        last = (done.stderr.strip().splitlines() or ["it has no coresched"])[-1]
        raise InputError(f"--vllm-python {python!r} has no vLLM with coresched: {last}")
    return done.stdout.strip().splitlines()[-1]
