"""The runs as a table and as JSON."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from rich.table import Table

from bench.engine_batch.runs import Comparison, Run
from bench.machine import Machine
from bench.results import heading, print_page, today
from bench.spread import spread_of
from coresched import __version__
from coresched.cli.terminal import stdout_console
from coresched.lab.replay.table import table_rows, unit_of
from coresched.lab.units import count_text

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


def print_runs(command: str, machine: Machine, comparison: Comparison, runs: Sequence[Run]) -> None:
    """The gain is over the first set-up of the same round."""
    console = stdout_console()
    unit = unit_of([(run.setup.name, run.metrics) for run in runs])
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    for name in COLUMNS:
        head = f"{name}\n({unit.name})" if name in ("makespan", "L5") else name
        table.add_column(head, justify="left" if name == "run" else "right", no_wrap=True)
    for of_round in rounds_of(comparison, runs):
        rows = table_rows([(run.setup.name, run.metrics) for run in of_round], unit)
        for run, (name, *rest) in zip(of_round, rows, strict=True):
            busy = run.engines_cpu_s / run.wall_s / machine.cores
            table.add_row(name, str(run.sample_concurrency), *rest, f"{busy:.0%}")
    turns = sum(len(one.turns) for one in comparison.workload)
    kind = comparison.kind
    lines = (
        *heading(command, machine),
        kind.title,
        f"{len(comparison.workload)} trajectories, {turns:,} turns, C_A = {kind.label_capacity}, "
        f"C_E = {comparison.environment_concurrency}",
    )
    notes = (
        *ratio_lines(comparison, runs),
        *(f"{setup.name}: {setup.adds}" for setup in comparison.setups),
        recomputed_line(comparison, runs),
        "CPU: of the servers, as a share of the machine while the run went on.",
    )
    print_page(console, lines, table, notes=notes)


def rounds_of(comparison: Comparison, runs: Sequence[Run]) -> Iterator[list[Run]]:
    """The runs of each round in the order of the set-ups, in whatever order they ran."""
    order = [setup.name for setup in comparison.setups]
    for number in sorted({run.round for run in runs}):
        of_round = [run for run in runs if run.round == number]
        yield sorted(of_round, key=lambda run: order.index(run.setup.name))


def recomputed(comparison: Comparison, run: Run) -> int | None:
    """Prompt tokens computed although an earlier turn had them; None where the engine does not say."""
    computed = run.metrics.new_prefill_tokens
    return None if computed is None else computed - comparison.new_tokens


def makespan_ratios(comparison: Comparison, runs: Sequence[Run]) -> dict[str, list[float]]:
    """Of each set-up but the first: the first one's makespan over its own, round by round."""
    found: dict[str, list[float]] = {setup.name: [] for setup in comparison.setups[1:]}
    for first, *others in rounds_of(comparison, runs):
        for run in others:
            assert first.metrics.makespan_s is not None
            assert run.metrics.makespan_s is not None
            found[run.setup.name].append(first.metrics.makespan_s / run.metrics.makespan_s)
    return found


def ratio_lines(comparison: Comparison, runs: Sequence[Run]) -> Iterator[str]:
    first = comparison.setups[0].name
    for name, ratios in makespan_ratios(comparison, runs).items():
        spread = spread_of(ratios)
        yield (
            f"Makespan of {first} over {name}: median {spread.median:.2f}, quartiles {spread.q1:.2f} to "
            f"{spread.q3:.2f}, all {min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} pairs."
        )


def recomputed_line(comparison: Comparison, runs: Sequence[Run]) -> str:
    told = []
    for setup in comparison.setups:
        found = [recomputed(comparison, run) for run in runs if run.setup == setup]
        known = [tokens for tokens in found if tokens is not None]
        told.append(f"{setup.name} {count_text(median(known)) if known else '-'}")
    return (
        f"Prompt tokens computed beyond the {comparison.new_tokens:,} no earlier turn had, in the median: "
        f"{', '.join(told)}."
    )


def as_json(command: str, machine: Machine, comparison: Comparison, runs: Sequence[Run]) -> str:
    kind = comparison.kind
    report: dict[str, Any] = {
        "command": command,
        "date": today(),
        "version": __version__,
        "machine": asdict(machine),
        **kind.facts,
        "speed": kind.speed,
        "trajectories": len(comparison.workload),
        "turns": sum(len(one.turns) for one in comparison.workload),
        "environment_concurrency": comparison.environment_concurrency,
        "makespan_ratios": makespan_ratios(comparison, runs),
        "runs": [
            {"round": run.round, "name": run.setup.name, "sample_concurrency": run.sample_concurrency}
            | {"metrics": asdict(run.metrics), "wall_s": run.wall_s}
            | {"recomputed_tokens": recomputed(comparison, run)}
            | {"engines_cpu_s": run.engines_cpu_s, "client_cpu_s": run.client_cpu_s}
            for run in runs
        ],
    }
    return json.dumps(report, indent=2)
