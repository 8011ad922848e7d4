"""The runs as a table and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from bench.machine import Machine
from bench.results import heading, print_page, today
from bench.sglang_batch.runs import Comparison, Run
from bench.sglang_batch.setups import SETUPS
from coresched import __version__
from coresched.cli.terminal import stdout_console
from coresched.lab.replay.table import table_rows, unit_of

COLUMNS = (
    "run",
    "C_S",
    "makespan",
    "gain",
    "cache\nreuse",
    "new\nprefill",
    "in\nflight",
    "L5",
    "imba-\nlance",
    "CPU",
)


def print_runs(
    command: str, machine: Machine, sglang: str, comparison: Comparison, runs: Sequence[Run]
) -> None:
    """The gain is over the first set-up of the same round."""
    console = stdout_console()
    unit = unit_of([(run.setup.name, run.metrics) for run in runs])
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    for name in COLUMNS:
        head = f"{name}\n({unit.name})" if name in ("makespan", "L5") else name
        table.add_column(head, justify="left" if name == "run" else "right", no_wrap=True)
    for number in range(len(runs) // len(SETUPS)):
        of_round = [run for run in runs if run.round == number]
        rows = table_rows([(run.setup.name, run.metrics) for run in of_round], unit)
        for run, (name, *rest) in zip(of_round, rows, strict=True):
            busy = run.engines_cpu_s / run.wall_s / machine.cores
            table.add_row(name, str(run.sample_concurrency), *rest, f"{busy:.0%}")
    turns = sum(len(one.turns) for one in comparison.workload)
    lines = (
        *heading(command, machine),
        f"SGLang {sglang}, two servers on a simulated device {comparison.speed:g}x as fast as it is",
        f"{len(comparison.workload)} trajectories, {turns:,} turns, C_A = {comparison.made.label_capacity}, "
        f"C_E = {comparison.environment_concurrency}",
    )
    notes = (
        *(f"{setup.name}: {setup.adds}" for setup in SETUPS),
        "CPU: of the servers, as a share of the machine while the run went on.",
    )
    print_page(console, lines, table, notes=notes)


def as_json(command: str, machine: Machine, sglang: str, comparison: Comparison, runs: Sequence[Run]) -> str:
    report: dict[str, Any] = {
        "command": command,
        "date": today(),
        "version": __version__,
        "sglang": sglang,
        "machine": asdict(machine),
        "speed": comparison.speed,
        "trajectories": len(comparison.workload),
        "turns": sum(len(one.turns) for one in comparison.workload),
        "environment_concurrency": comparison.environment_concurrency,
        "plan": {
            "flags": list(comparison.made.engine_flags),
            "reference_concurrency": comparison.made.reference_concurrency,
            "label_capacity": comparison.made.label_capacity,
        },
        "runs": [
            {"round": run.round, "name": run.setup.name, "sample_concurrency": run.sample_concurrency}
            | {"metrics": asdict(run.metrics), "wall_s": run.wall_s}
            | {"engines_cpu_s": run.engines_cpu_s, "client_cpu_s": run.client_cpu_s}
            for run in runs
        ],
    }
    return json.dumps(report, indent=2)
