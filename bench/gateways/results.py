"""The results of `python -m bench gateway`, as JSON and as two tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

from rich.console import Console
from rich.table import Table

from bench.machine import Machine
from bench.results import encodable, heading, print_page, three_digits, time_text, today
from bench.spread import Spread, spread_of
from coresched import __version__
from coresched.cli.terminal import stdout_console

PLACEMENT = "placement"

NOTES = (
    "Medians; IQR: interquartile range over median. Client, workers and gateway share",
    "this machine's cores: req/s is for comparing, no promise.",
    "CPU us: of the gateway, a request; httpx: of the client's process, so that the",
    "transport's share is the difference to httpx alone, which asks workers in turn.",
    "MiB: resident memory of the gateway; both with the picker beside it.",
    "kept: turns on the worker of the turn before. live, held: max over mean of the",
    "requests on the workers, of live trajectories and of Zipf labels that all wait.",
    "on 2: of held requests of one label, those on the two workers that have most.",
    "moved: labels elsewhere with a 4th worker beside 3; to it: those that it serves.",
)


@dataclass(frozen=True)
class Row:
    """One subject in one case. ``n``: connections, or trajectories at once."""

    case: str
    n: int
    subject: str
    measures: dict[str, Spread]


@dataclass(frozen=True)
class Report:
    command: str
    machine: Machine
    rounds: int
    rows: Sequence[Row]
    absent: Sequence[str]


class Rounds:
    """What was measured, round after round."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, int, str], dict[str, list[float]]] = {}

    def add(self, case: str, n: int, subject: str, measures: dict[str, float]) -> None:
        samples = self._samples.setdefault((case, n, subject), {})
        for name, value in measures.items():
            samples.setdefault(name, []).append(value)

    def rows(self) -> list[Row]:
        """A row for each case and subject, in the order in which they were first measured."""
        found = [
            Row(*key, {name: spread_of(values) for name, values in samples.items()})
            for key, samples in self._samples.items()
        ]
        cases = list(dict.fromkeys((row.case, row.n) for row in found))
        return sorted(found, key=lambda row: cases.index((row.case, row.n)))


def as_json(report: Report) -> str:
    return json.dumps(
        {
            "command": report.command,
            "date": today(),
            "version": __version__,
            "machine": asdict(report.machine),
            "absent_peers": list(report.absent),
            "rounds": report.rounds,
            "rows": [
                {
                    "case": row.case,
                    "n": row.n,
                    "subject": row.subject,
                    **{
                        name: {"median": spread.median, "spread": [spread.q1, spread.q3]}
                        for name, spread in row.measures.items()
                    },
                }
                for row in report.rows
            ],
        },
        indent=2,
    )


def print_report(report: Report, notes: Sequence[str] = NOTES) -> None:
    """Machine and command, what requests cost, where they went if that was asked, what it all means."""
    console = stdout_console()
    tables = [_costs([row for row in report.rows if row.case != PLACEMENT], console)]
    if placed := [row for row in report.rows if row.case == PLACEMENT]:
        tables.append(_placements(placed))
    print_page(console, heading(report.command, report.machine), *tables, notes=notes)
    if report.absent:
        console.print(f"Left out: {', '.join(report.absent)} (--install-peers installs them).")


_LEFT = ("case", "subject")


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, no_wrap=True, justify="left" if name in _LEFT else "right")
    return table


def _costs(rows: Sequence[Row], console: Console) -> Table:
    table = _table("case", "n", "subject", "req/s", "p50", "p99", "CPU us", "IQR", "MiB")

    def seconds(spread: Spread) -> str:
        return encodable(time_text(spread.median), console)

    for (case, n), found in groupby(rows, key=lambda row: (row.case, row.n)):
        for place, row in enumerate(found):
            table.add_row(
                *((case, str(n)) if place == 0 else ("", "")),
                row.subject,
                _shown(row, "requests_per_s", lambda spread: f"{spread.median:,.0f}"),
                _shown(row, "p50_s", seconds),
                _shown(row, "p99_s", seconds),
                *_cpu(row, "cpu_s"),
                _shown(row, "resident_bytes", lambda spread: f"{spread.median / (1 << 20):.0f}"),
            )
            if "beside_cpu_s" in row.measures:
                table.add_row("", "", "  picker of these", "", "", "", *_cpu(row, "beside_cpu_s"), "")
    return table


def _cpu(row: Row, name: str) -> tuple[str, str]:
    return (
        _shown(row, name, lambda spread: three_digits(spread.median * 1e6)),
        _shown(row, name, lambda spread: f"{spread.relative_iqr:.0%}"),
    )


def _placements(rows: Sequence[Row]) -> Table:
    table = _table("subject", "kept", "IQR", "live", "IQR", "held", "IQR", "on 2", "moved", "to it")
    for row in rows:
        cells = []
        for name, text in (("affinity", _percent), ("live_imbalance", _digits), ("held_imbalance", _digits)):
            cells += [
                _shown(row, name, text),
                _shown(row, name, lambda spread: f"{spread.relative_iqr:.0%}"),
            ]
        table.add_row(
            row.subject,
            *cells,
            *(_shown(row, name, _percent) for name in ("hot_on_two", "moved", "moved_to_new")),
        )
    return table


def _percent(spread: Spread) -> str:
    return f"{spread.median:.1%}"


def _digits(spread: Spread) -> str:
    return three_digits(spread.median)


def _shown(row: Row, name: str, text_of: Callable[[Spread], str]) -> str:
    return text_of(row.measures[name]) if name in row.measures else ""
