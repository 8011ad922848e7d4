"""`python -m bench chaos`: the full-size runs, and a table of what came of them."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import msgspec
from rich.table import Table

from bench.chaos.attempts import MalformedLogError
from bench.chaos.faults import Counts
from bench.chaos.outcome import Outcome
from bench.chaos.run import run
from bench.chaos.settings import Settings
from bench.machine import Machine, this_machine
from bench.progress import announce, clear
from bench.results import heading, today
from coresched import __version__
from coresched.cli.terminal import stdout_console

FULL = Settings(
    processes=64,
    samples=2_000,
    workers=4,
    sample_concurrency=96,
    environment_concurrency=24,
    resident_concurrency=72,
    grace_s=10.0,
    seed=0,
)
QUICK = msgspec.structs.replace(
    FULL,
    processes=12,
    samples=150,
    workers=2,
    sample_concurrency=24,
    environment_concurrency=6,
    resident_concurrency=18,
    grace_s=4.0,
)
RUNS: dict[str, Counts] = {
    "calm": {},
    "service": {"service": 5},
    "all": {"service": 5, "worker": 6, "harness": 12, "stall": 3},
}
LIMIT_S = 600.0


def carry_out(args: argparse.Namespace) -> int:
    """Exit code: 0 if nothing was found, 1 if anything was, or a run did not come to its end."""
    settings = msgspec.structs.replace(QUICK if args.quick else FULL, seed=args.seed)
    machine = this_machine()
    outcomes: dict[str, Outcome] = {}
    folder = Path(tempfile.mkdtemp(prefix="coresched-chaos-")) if args.keep is None else args.keep
    sound = False
    try:
        for name in RUNS if args.only is None else [args.only]:
            within = folder / name
            within.mkdir(parents=True)
            outcomes[name] = asyncio.run(run(settings, RUNS[name], within, limit_s=LIMIT_S, tell=announce))
            clear()
        sound = not any(outcome.findings.all() for outcome in outcomes.values())
    except (RuntimeError, TimeoutError, MalformedLogError) as error:
        clear()
        print(f"python -m bench chaos: --seed {args.seed}, run {name}: {error}", file=sys.stderr)
        return 1
    finally:
        if sound and args.keep is None:
            shutil.rmtree(folder)
        else:
            print(f"python -m bench chaos: journals and logs are in {folder}", file=sys.stderr)
    if args.json:
        print(_as_json(args.command_line, settings, machine, outcomes))
    else:
        _print(args.command_line, settings, machine, outcomes)
    return 0 if sound else 1


def _as_json(command: str, settings: Settings, machine: Machine, outcomes: dict[str, Outcome]) -> str:
    return json.dumps(
        {
            "command": command,
            "date": today(),
            "version": __version__,
            "machine": asdict(machine),
            "settings": msgspec.to_builtins(settings),
            "runs": {name: asdict(outcome) for name, outcome in outcomes.items()},
        },
        indent=2,
    )


def _print(command: str, settings: Settings, machine: Machine, outcomes: dict[str, Outcome]) -> None:
    console = stdout_console()
    for line in heading(command, machine):
        console.print(line)
    console.print(
        f"{settings.processes} harness processes, {settings.samples:,} samples, {settings.workers} workers"
    )
    console.print(
        f"C_S {settings.sample_concurrency}, C_R {settings.resident_concurrency}, "
        f"C_E {settings.environment_concurrency}, grace {settings.grace_s:g} s, seed {settings.seed}"
    )
    console.print()
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    for name in outcomes:
        table.add_column(name, justify="right", no_wrap=True)
    for what in _rows(next(iter(outcomes.values()))):
        table.add_row(what, *(_rows(outcome)[what] for outcome in outcomes.values()))
    console.print(table)
    for name, outcome in outcomes.items():
        for finding in outcome.findings.all()[:20]:
            console.print(f"{name}: {finding}")


def _rows(outcome: Outcome) -> dict[str, str]:
    found, saw = outcome.findings, outcome.measures
    restarts = saw.service_restarts_s
    return {
        "samples lost": str(len(found.lost)),
        "finished or run twice": str(len(found.twice)),
        "limits exceeded": str(len(found.over_limit)),
        "report differs": str(len(found.report)),
        "left over": str(len(found.left_over)),
        "service killed": str(len(restarts)),
        "workers killed": str(saw.worker_restarts),
        "harnesses killed": str(saw.died),
        "sessions lost": str(saw.lost_sessions),
        "samples admitted again": str(saw.readmissions),
        "turns": f"{saw.turns:,}",
        "turns failed": f"{saw.failed_turns:,}",
        "environment stages": f"{saw.environment_stages:,}",
        "most samples at once": str(saw.most_samples),
        "most residents at once": str(saw.most_residents),
        "most stages at once": str(saw.most_stages),
        "prompt tokens cached": f"{saw.reuse:.0%}",
        "wall time": f"{saw.wall_s:.0f} s",
        "service back after": f"{min(restarts):.1f} to {max(restarts):.1f} s" if restarts else "",
        "service calls": f"{saw.calls:,}",
        "service calls a second": f"{saw.calls / saw.wall_s:,.0f}",
        "service CPU": f"{saw.service_cpu_s:.0f} s",
        "CPU of a call": f"{saw.service_cpu_s / saw.calls * 1000:.2f} ms",
    }
