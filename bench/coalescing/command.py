"""`python -m bench coalescing`: whether prefilling several returning turns at once pays."""

import argparse
import json
import sys
from dataclasses import asdict
from typing import Final

from bench.coalescing.report import print_report
from bench.coalescing.simulated import Pairs, cases, run_all
from bench.machine import this_machine
from bench.measuring import Measured, MeasuringFailedError, Program
from bench.progress import announce, clear
from bench.results import today
from bench.sglang_policies import processes as sglang
from bench.vllm_python import environment as vllm_environment
from coresched import __version__
from coresched.cli.parser import CommandParser, add_command, count
from coresched.errors import InputError
from coresched.lab.advice.judgement import LEAST_SEEDS

SEEDS: Final = 10
SGLANG_MEMORY: Final = "140GiB"
"""So much that nothing is evicted, which would be another matter."""


def sglang_environment() -> dict[str, str]:
    return {**sglang.environment(), "CORESCHED_SIMDEVICE_MEMORY": SGLANG_MEMORY}


SGLANG: Final = Program("bench.coalescing.sglang_program", "--sglang-python", "SGLang", sglang_environment)
VLLM: Final = Program("bench.coalescing.vllm_program", "--vllm-python", "vLLM", vllm_environment)


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "coalescing",
        summary="returning turns held back to be prefilled together",
        description="Hold turns that return from their environments until eight of them wait, or a second\n"
        "has passed, so that one prefill batch serves them all: the paper's workloads in the simulator\n"
        "under three fixed costs of a prefill batch, and, with the interpreters of engines, SGLang's\n"
        "own scheduler in virtual time and vLLM with a tiny model on the CPU.",
        example="python -m bench coalescing --sglang-python .venv-sglang/bin/python",
    )
    parser.add_argument(
        "--seeds", type=count, metavar="N", help=f"seeds, at least {LEAST_SEEDS} (default {SEEDS})"
    )
    parser.add_argument("--sglang-python", metavar="PATH", help="an environment with sglang and coresched")
    parser.add_argument("--vllm-python", metavar="PATH", help="an environment with vllm and coresched")
    parser.add_argument(
        "--engines-only", action="store_true", help="leave the simulator out; it takes most of the time"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one case, six seeds if not told, small batches: to see that it runs",
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    seeds = args.seeds or (LEAST_SEEDS if args.quick else SEEDS)
    if seeds < LEAST_SEEDS:
        raise InputError(f"--seeds {seeds} is too few for an interval; give at least {LEAST_SEEDS}")
    asked = [(program, path) for program, path in _engines(args) if path is not None]
    if args.engines_only and not asked:
        raise InputError("--engines-only leaves nothing to run; give --sglang-python or --vllm-python")
    pythons = [(program, program.require(path)) for program, path in asked]
    machine = this_machine()
    pairs: Pairs = {}
    if not args.engines_only:
        chosen = cases()[:1] if args.quick else cases()
        pairs = run_all(chosen, range(seeds), announce)
    engines: dict[str, Measured] = {}
    for program, python in pythons:
        try:
            engines[program.engine] = program.measured(python, is_quick=args.quick, announce=announce)
        except MeasuringFailedError as error:
            clear()
            print(f"python -m bench coalescing: {program.engine} failed: {error}", file=sys.stderr)
            return 1
    clear()
    if not args.json:
        print_report(args.command_line, machine, pairs, engines)
        return 0
    found = {
        "command": args.command_line,
        "date": today(),
        "version": __version__,
        "machine": asdict(machine),
        "simulated": [
            {"case": case.name, "prefill_batch_s": fixed_s, "runs": [asdict(pair) for pair in each]}
            for (case, fixed_s), each in pairs.items()
        ],
        "engines": {name: asdict(each) for name, each in engines.items()},
    }
    print(json.dumps(found, indent=2))
    return 0


def _engines(args: argparse.Namespace) -> tuple[tuple[Program, str | None], ...]:
    return (SGLANG, args.sglang_python), (VLLM, args.vllm_python)
