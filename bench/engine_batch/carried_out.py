"""Carries out a comparison of two servers' batches, for the command of either engine."""

import argparse
import sys
from pathlib import Path

from bench.engine_batch.engines import NoServerError
from bench.engine_batch.results import as_json, print_runs
from bench.engine_batch.runs import Comparison, Run, StoppedError, all_runs
from bench.machine import Machine
from bench.progress import announce, clear


def carry_out(
    args: argparse.Namespace, comparison: Comparison, rounds: int, folder: Path, machine: Machine
) -> int:
    """Boot the servers, run every setup in each round, and print what came of it. Returns the exit code."""
    runs: list[Run] = []
    announce("booting four servers")
    try:
        for one in all_runs(comparison, rounds, folder):
            runs.append(one)
            done = f"{len(runs)} of {len(comparison.setups) * rounds} runs"
            announce(f"{done}: {one.setup.name} took {one.wall_s:.0f} s")
    except (NoServerError, StoppedError) as error:
        clear()
        print(f"python -m bench {args.command}: {error}", file=sys.stderr)
        return 1
    clear()
    if args.json:
        print(as_json(args.command_line, machine, comparison, runs))
    else:
        print_runs(args.command_line, machine, comparison, runs)
    return 0
