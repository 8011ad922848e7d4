"""The results of `python -m bench vllm-priority`, as JSON and as a table."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from rich.table import Table

from bench.machine import Machine
from bench.measuring import Measured
from bench.results import encodable, heading, print_page, ratio_text, time_text, today
from bench.spread import Spread, spread_of
from bench.vllm_priority import names
from coresched import __version__
from coresched.cli.terminal import stdout_console

NOTES = (
    "whole step: vLLM's schedule() while the engine is full and none is admitted. The",
    "rest: what an order does with the queue in a pass, up to the first request, with",
    "entering new ones. CPU time, median; IQR: interquartile range over median. ratio:",
    "to routing-prefix in the same case. without retention: routing-prefix where states",
    "are left to vLLM. its ...: parts of the order that is above them.",
)


@dataclass(frozen=True)
class Row:
    """One order in one case at one queue length. ``one_pass`` is in seconds."""

    waiting: int
    case: str
    policy: str
    one_pass: Spread


@dataclass(frozen=True)
class Report:
    command: str
    machine: Machine
    engine: dict[str, Any]
    rows: Sequence[Row]


def report_of(command: str, machine: Machine, measured: Measured) -> Report:
    rows = [
        Row(row["waiting"], row["case"], row["policy"], spread_of(row["samples_s"])) for row in measured.rows
    ]
    rows.sort(key=lambda row: (names.CASES.index(row.case), row.waiting))
    return Report(command, machine, measured.engine, rows)


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
                    "waiting": row.waiting,
                    "case": row.case,
                    "policy": row.policy,
                    "pass_s": row.one_pass.median,
                    "pass_spread_s": [row.one_pass.q1, row.one_pass.q3],
                    "ratio": ratio_of(row, report.rows),
                }
                for row in report.rows
            ],
        },
        indent=2,
    )


def print_report(report: Report) -> None:
    """Machine, engine and command, a line for each order in each case, and what the numbers mean."""
    console = stdout_console()
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    table.add_column("case", no_wrap=True)
    table.add_column("waiting", justify="right", no_wrap=True)
    table.add_column("order", no_wrap=True)
    for name in ("a pass", "IQR", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    for (case, waiting), rows in groupby(report.rows, key=lambda row: (row.case, row.waiting)):
        for place, row in enumerate(rows):
            table.add_row(
                case if place == 0 else "",
                f"{waiting:,}" if place == 0 else "",
                row.policy,
                encodable(time_text(row.one_pass.median), console),
                f"{row.one_pass.relative_iqr:.0%}",
                "" if row.policy == names.RP else ratio_text(ratio_of(row, report.rows)),
                style="bold" if row.policy == names.RP else "",
            )
    engine = report.engine
    lines = (
        *heading(report.command, report.machine),
        f"vLLM {engine['vllm']}, {engine['python']}, {engine['repeats']} repeats; blocks of "
        f"{engine['block_tokens']} tokens;",
        f"resident: {engine['resident']} trajectories, {engine['resident_tokens'] / 1e6:.1f} million tokens; "
        f"{engine['running']} requests run",
    )
    print_page(console, lines, table, notes=NOTES)


def ratio_of(row: Row, rows: Sequence[Row]) -> float:
    """How many times as long as routing-prefix it takes."""
    ours = next(
        other.one_pass.median
        for other in rows
        if (other.case, other.waiting, other.policy) == (row.case, row.waiting, names.RP)
    )
    return row.one_pass.median / ours
