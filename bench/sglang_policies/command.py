"""`python -m bench sglang-policies`: makespan, reuse and cost of each policy in SGLang's real scheduler."""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.machine import Machine, this_machine
from bench.progress import announce, clear
from bench.results import heading, time_text, today
from bench.sglang_policies.models import MODELS
from bench.sglang_policies.policies import POLICIES, QUICK_POLICIES
from bench.sglang_policies.processes import Run, RunFailedError, carry_out_all, sglang_version
from bench.sglang_policies.setups import SETUPS, smaller
from coresched import __version__
from coresched.cli.parser import CommandParser, add_command
from coresched.cli.terminal import stdout_console
from coresched.lab.units import count_text, percent_text

Results = dict[Run, dict[str, Any]]

NOTES = (
    "Times are virtual, of the simulated device, but calc: CPU seconds of this machine",
    "for ordering the waiting queue, all passes together. cached: of the input tokens.",
    "prefill: input tokens computed. no hit: later turns that found nothing cached.",
    "queue: 95th percentile over the turns of the time in the waiting queue.",
)


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "sglang-policies",
        summary="scheduling policies inside SGLang's real scheduler, on a simulated device",
        description="Run batches of multi-turn trajectories on SGLang's own scheduler and caches in virtual\n"
        "time, once for each policy: SGLang's own, routing-prefix with several label capacities and\n"
        "routing-residency. Each run is a process of its own, two at once.",
        example="python -m bench sglang-policies --sglang-python .venv-sglang/bin/python",
    )
    parser.add_argument(
        "--sglang-python",
        metavar="PATH",
        required=True,
        help="the Python of an environment that has sglang and coresched",
    )
    parser.add_argument("--quick", action="store_true", help="small batches, one model, four policies")
    parser.add_argument("--setup", choices=[setup.name for setup in SETUPS], help="only this set-up")
    parser.add_argument("--model", choices=list(MODELS), help="only this model")
    parser.add_argument(
        "--policy",
        choices=list(dict.fromkeys(policy.name for policy in POLICIES)),
        action="append",
        help="only this policy; may be given several times",
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of lengths and tokens")
    parser.add_argument(
        "--charge-scheduler",
        action="store_true",
        help="let the CPU time of ordering the queue pass in virtual time; runs then differ a little",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    python = args.sglang_python
    version = sglang_version(python)
    setups = [setup for setup in SETUPS if args.setup in (None, setup.name)]
    models = [model for model in MODELS if args.model in (None, model)]
    if args.quick:
        setups, models = [smaller(setup) for setup in setups], models[:1]
    policies = QUICK_POLICIES if args.quick else POLICIES
    runs = [
        Run(setup, model, policy, args.seed, args.charge_scheduler)
        for setup in setups
        for model in models
        for policy in policies
        if args.policy is None or policy.name in args.policy
    ]
    machine = this_machine()
    results: Results = {}
    announce(f"0 of {len(runs)} runs")
    try:
        with tempfile.TemporaryDirectory() as folder:
            jobs = {run: run.job(Path(folder)) for run in runs}
            for done, result in carry_out_all(python, jobs):
                results[done] = result
                announce(f"{len(results)} of {len(runs)} runs")
    except RunFailedError as error:
        clear()
        print(f"python -m bench sglang-policies: {error}", file=sys.stderr)
        return 1
    clear()
    ordered = {each: results[each] for each in runs}
    if args.json:
        print(as_json(args.command_line, machine, version, ordered))
    else:
        print_report(args.command_line, machine, version, ordered)
    return 0


def as_json(command: str, machine: Machine, version: str, results: Results) -> str:
    rows = [
        {
            "setup": run.setup.name,
            "model": run.model,
            "policy": run.policy.name,
            "label_capacity": run.policy.label_capacity,
            **result,
        }
        for run, result in results.items()
    ]
    setups = {run.setup.name: asdict(run.setup) for run in results}
    return json.dumps(
        {
            "command": command,
            "date": today(),
            "version": __version__,
            "sglang": version,
            "machine": asdict(machine),
            "setups": setups,
            "rows": rows,
        },
        indent=2,
    )


def print_report(command: str, machine: Machine, version: str, results: Results) -> None:
    console = stdout_console()
    for line in heading(command, machine):
        console.print(line)
    console.print(f"sglang {version}")
    for setup, model in dict.fromkeys((run.setup, run.model) for run in results):
        console.print()
        console.print(
            f"{setup.name}: {setup.samples} trajectories, C_S {setup.sample_concurrency}, "
            f"{setup.max_running_requests} running, {setup.state_slots} state slots, {model}",
            soft_wrap=True,
        )
        print_table(
            console,
            {run: found for run, found in results.items() if (run.setup, run.model) == (setup, model)},
        )
    console.print()
    for note in NOTES:
        console.print(note)


def print_table(console: Console, results: Results) -> None:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    table.add_column("policy", no_wrap=True)
    for name in ("makespan", "cached", "prefill", "no hit", "queue", "calc"):
        table.add_column(name, justify="right", no_wrap=True)
    for run, result in results.items():
        table.add_row(
            run.policy.title,
            f"{result['makespan_s']:.1f} s",
            percent_text(result["cache_reuse"]),
            count_text(result["new_prefill_tokens"] + result["recomputed_tokens"]),
            f"{result['later_turns_without_hit']} of {result['later_turns']}",
            f"{result['queue_p95_s']:.1f} s",
            time_text(result["priority_calculation_s"]),
        )
    console.print(table)
