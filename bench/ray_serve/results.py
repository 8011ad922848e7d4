"""The results of `python -m bench ray`, as JSON and as a table."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from bench.machine import Machine
from bench.measuring import Measured
from bench.ray_serve import names
from bench.results import encodable, heading, print_page, time_text, today
from bench.spread import Spread, spread_of
from coresched import __version__
from coresched.cli.terminal import stdout_console

NOTES = (
    "hot, zipf, uniform: requests in flight together, by replica: 30 of one label,",
    "60 of twenty labels, few of which are frequent, 60 of sixty. together: of the",
    "zipf ones, those on the replica that got most of their label's. as core:",
    "requests that went where coresched's router in one process sends them. kept:",
    "60 trajectories of 4 turns with pauses; later turns at the replica of the turn",
    "before. call: one after another through a handle, median; IQR: interquartile",
    "range over median.",
)


@dataclass(frozen=True)
class Held:
    """Requests in flight together: by replica, and the share that was together by label."""

    split: Sequence[int]
    together: float
    as_in_process: int | None


@dataclass(frozen=True)
class Row:
    """One router. ``call`` is in seconds."""

    router: str
    held: dict[str, Held]
    turns_kept: float
    turns_split: Sequence[int]
    call: Spread


@dataclass(frozen=True)
class Report:
    command: str
    machine: Machine
    engine: dict[str, Any]
    rows: Sequence[Row]


def report_of(command: str, machine: Machine, measured: Measured) -> Report:
    by_router: dict[str, dict[str, dict[str, Any]]] = {}
    for row in measured.rows:
        by_router.setdefault(row["router"], {})[row["case"]] = row
    rows = [
        Row(
            router,
            {case: _held(cases[case]) for case in names.CASES},
            cases["turns"]["kept"],
            cases["turns"]["split"],
            spread_of(cases["call"]["samples_s"]),
        )
        for router, cases in by_router.items()
    ]
    return Report(command, machine, measured.engine, rows)


def _held(row: dict[str, Any]) -> Held:
    return Held(row["split"], row["together"], row.get("as_in_process"))


def as_json(report: Report) -> str:
    return json.dumps(
        {
            "command": report.command,
            "date": today(),
            "version": __version__,
            "machine": asdict(report.machine),
            "engine": report.engine,
            "rows": [
                {
                    "router": row.router,
                    **{case: asdict(held) for case, held in row.held.items()},
                    "turns_kept": row.turns_kept,
                    "turns_split": row.turns_split,
                    "call_s": row.call.median,
                    "call_spread_s": [row.call.q1, row.call.q3],
                }
                for row in report.rows
            ],
        },
        indent=2,
    )


def print_report(report: Report) -> None:
    """Machine, Ray and command, a line for each router, and what the numbers mean."""
    console = stdout_console()
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("router", no_wrap=True)
    for name in ("hot", "zipf", "together", "uniform", "as core", "kept", "call", "IQR"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in report.rows:
        hot, zipf, uniform = (row.held[case] for case in names.CASES)
        table.add_row(
            row.router,
            _by_replica(hot),
            _by_replica(zipf),
            f"{zipf.together:.0%}",
            _by_replica(uniform),
            _as_core([hot, zipf, uniform]),
            f"{row.turns_kept:.0%}",
            encodable(time_text(row.call.median), console),
            f"{row.call.relative_iqr:.0%}",
            style="bold" if row.router == names.LBCH else "",
        )
    engine = report.engine
    lines = (
        *heading(report.command, report.machine),
        f"Ray {engine['ray']}, {engine['python']}, three replicas; {engine['calls']} timed calls",
    )
    print_page(console, lines, table, notes=NOTES)


def _by_replica(held: Held) -> str:
    return "/".join(map(str, held.split))


def _as_core(held: Sequence[Held]) -> str:
    found = [each for each in held if each.as_in_process is not None]
    if not found:
        return ""
    return f"{sum(each.as_in_process or 0 for each in found)}/{sum(sum(each.split) for each in found)}"
