"""`python -m bench sglang-batch`: a batch on two real SGLang servers, as it comes and coordinated."""

import argparse
import tempfile
from pathlib import Path

from bench.engine_batch.options import add_batch_options
from bench.engine_batch.setups import COORDINATED, DECOUPLED, STOCK
from bench.engine_batch.sglang_servers import Device, SGLang
from bench.machine import this_machine
from bench.sglang_policies.models import write_model
from bench.sglang_policies.processes import sglang_version
from coresched.cli.parser import CommandParser, add_command, number
from coresched.trajectory.reader import load_trajectories
from coresched.trajectory.scaling import scaled
from coresched.trajectory.workloads import demo_workload

MODEL = "ling-3.0-flash"
DEVICE = Device(memory="80GiB", weights="64GiB", memory_fraction=0.9, context_length=65536)
SETUPS = (STOCK, DECOUPLED, COORDINATED)
QUICK_SAMPLES, QUICK_FRACTION = 16, 20


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "sglang-batch",
        summary="a batch on two real SGLang servers, as it comes and coordinated",
        description="Replay a batch against two SGLang servers on a simulated device of 80 GiB: under one\n"
        "limit and a round-robin router, with samples admitted apart from environments, and with\n"
        "coresched's plan, service and policy. Boots four servers, which takes 12 GB of memory and\n"
        "a few minutes. Linux only.",
        example="python -m bench sglang-batch --sglang-python ~/sglang/bin/python --trace traces.jsonl",
    )
    add_batch_options(
        parser, "sglang", "them", samples=100, turns_over=8, environment_concurrency=12, rounds=2
    )
    parser.add_argument(
        "--speed",
        type=number(above=0),
        default=2.0,
        metavar="X",
        help="of the device; what SGLang computes itself is not faster, so watch the column CPU "
        "(default %(default)g)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from bench.engine_batch.carried_out import carry_out
    from bench.engine_batch.runs import Comparison
    from bench.gateways.processes import check_system

    check_system()
    samples, fraction, rounds = args.samples, args.turns_over, args.rounds
    if args.quick:
        samples, fraction, rounds = QUICK_SAMPLES, QUICK_FRACTION, 1
    sglang = sglang_version(args.sglang_python)
    given = demo_workload() if args.trace is None else load_trajectories(args.trace)
    workload = scaled(given[:samples], turns_over=fraction)
    machine = this_machine()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        folder.mkdir(exist_ok=True)
        model = write_model(MODEL, Path(scratch))
        options = ["--model-config", str(model), "--memory", DEVICE.memory, "--weights", DEVICE.weights]
        options += ["--speed", str(args.speed)]
        kind = SGLang(
            python=args.sglang_python,
            version=sglang,
            made=DEVICE.plan(model, workload, args.environment_concurrency),
            device=DEVICE,
            options=options,
            speed=args.speed,
        )
        comparison = Comparison(kind, SETUPS, workload, args.environment_concurrency)
        return carry_out(args, comparison, rounds, folder, machine)
