"""The results of `python -m bench sglang-priority`, as JSON and as a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from rich.table import Table

from bench.machine import Machine
from bench.measuring import Measured
from bench.results import encodable, heading, print_page, ratio_text, three_digits, time_text, today
from bench.sglang_priority.names import COMPARED, FEW_NEW, OF_SGLANG, OURS, OURS_NONE_NEW
from bench.spread import Spread, spread_of
from coresched import __version__
from coresched.cli.terminal import stdout_console

NOTES = (
    "A pass: one priority calculation of the whole waiting queue, CPU time, median;",
    "IQR: interquartile range over median. routing-prefix: what the plugin adds to a",
    "pass of fcfs, no refresh. ratio: plain Python's to routing-prefix in the same",
    f"state; that of SGLang's policies to routing-prefix with {FEW_NEW} new requests;",
    "none new: theirs to routing-prefix with none.",
)


@dataclass(frozen=True)
class Row:
    """One policy at one queue length. ``one_pass`` is in seconds."""

    waiting: int
    policy: str
    one_pass: Spread

    @property
    def each_s(self) -> float:
        """Seconds a waiting request: level where the cost grows with the queue."""
        return self.one_pass.median / self.waiting


@dataclass(frozen=True)
class Report:
    command: str
    machine: Machine
    engine: dict[str, Any]
    rows: Sequence[Row]


def report_of(command: str, machine: Machine, measured: Measured) -> Report:
    rows = [Row(row["waiting"], row["policy"], spread_of(row["samples_s"])) for row in measured.rows]
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
                    "policy": row.policy,
                    "pass_s": row.one_pass.median,
                    "pass_spread_s": [row.one_pass.q1, row.one_pass.q3],
                    "waiting_request_s": row.each_s,
                    "ratio": ratio_of(row, of_size),
                    "none_new_ratio": none_new_ratio(row, of_size),
                }
                for of_size in by_size(report.rows)
                for row in of_size
            ],
        },
        indent=2,
    )


def by_size(rows: Sequence[Row]) -> list[list[Row]]:
    return [list(found) for _, found in groupby(rows, key=lambda row: row.waiting)]


def print_report(report: Report) -> None:
    """Machine, engine and command, a line for each policy at each queue length, and what the numbers mean."""
    console = stdout_console()
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    table.add_column("waiting", justify="right", no_wrap=True)
    table.add_column("policy", no_wrap=True)
    for name in ("a pass", "IQR", "ns a request", "ratio", "none new"):
        table.add_column(name, justify="right", no_wrap=True)
    for found in by_size(report.rows):
        for place, row in enumerate(found):
            ratio, idle = ratio_of(row, found), none_new_ratio(row, found)
            table.add_row(
                f"{row.waiting:,}" if place == 0 else "",
                row.policy,
                encodable(time_text(row.one_pass.median), console),
                f"{row.one_pass.relative_iqr:.0%}",
                three_digits(row.each_s * 1e9),
                "" if ratio is None else ratio_text(ratio),
                "" if idle is None else ratio_text(idle),
                style="bold" if row.policy in OURS else "",
            )
    lines = (*heading(report.command, report.machine), *engine_text(report.engine))
    print_page(console, lines, table, notes=NOTES)


def ratio_of(row: Row, rows: Sequence[Row]) -> float | None:
    """How many times as long as ours it takes; None where nothing of ours does the same."""
    ours = COMPARED.get(row.policy)
    return None if ours is None else _over(row, ours, rows)


def none_new_ratio(row: Row, rows: Sequence[Row]) -> float | None:
    """How many times as long a policy of SGLang's takes as ours where nothing is new; None for others."""
    return _over(row, OURS_NONE_NEW, rows) if row.policy in OF_SGLANG else None


def _over(row: Row, ours: str, rows: Sequence[Row]) -> float:
    return row.one_pass.median / next(other.one_pass.median for other in rows if other.policy == ours)


def engine_text(engine: dict[str, Any]) -> list[str]:
    return [
        f"SGLang {engine['sglang']}, {engine['python']}, {engine['tree']}, {engine['repeats']} repeats;",
        f"resident: {engine['resident']} trajectories of {engine['shortest'] // 1000}k to "
        f"{engine['longest'] // 1000}k tokens, {engine['resident_tokens'] / 1e6:.1f} million in all",
    ]
