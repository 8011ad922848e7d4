"""A benchmark's results, as JSON and as a table."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from itertools import groupby

from rich.console import Console
from rich.table import Table

from bench.machine import Machine
from bench.peers import absent
from bench.spread import Spread
from coresched import __version__
from coresched.cli.terminal import stdout_console

OURS_COUNTED, PEER_COUNTED = "ours_instructions", "peer_instructions"
"""Names of the counts of machine instructions an operation, where they were counted."""


@dataclass(frozen=True)
class Row:
    """Ours beside one peer, in seconds an operation; ``counts`` holds what only some benchmarks count."""

    case: str
    n: int
    peer: str
    ours: Spread
    theirs: Spread
    counts: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """How many times as long the peer takes: quotient of the medians."""
        return self.theirs.median / self.ours.median


@dataclass(frozen=True)
class Report:
    """One finished benchmark."""

    command: str
    machine: Machine
    repeats: int
    rows: Sequence[Row]


def as_json(report: Report, **more: object) -> str:
    """``more``: what a benchmark adds beside its rows."""
    return json.dumps(
        {
            "command": report.command,
            "date": today(),
            "version": __version__,
            "machine": asdict(report.machine),
            "absent_peers": absent(),
            "rows": [row_as_json(row, report.repeats) for row in report.rows],
            **more,
        },
        indent=2,
    )


def row_as_json(row: Row, repeats: int) -> dict[str, object]:
    return {
        "case": row.case,
        "n": row.n,
        **row.counts,
        "ours_s": row.ours.median,
        "ours_spread_s": [row.ours.q1, row.ours.q3],
        "peer": row.peer,
        "peer_s": row.theirs.median,
        "peer_spread_s": [row.theirs.q1, row.theirs.q3],
        "ratio": row.ratio,
        "repeats": repeats,
    }


def today() -> str:
    return datetime.now(timezone.utc).date().isoformat()


def print_report(
    report: Report,
    measured: str,
    text_of: Callable[[Spread], str],
    notes: Sequence[str],
    summaries: Sequence[Table] = (),
) -> None:
    """Machine and command, a line for each subject of each case, and what the numbers mean.

    ``measured`` heads the column that ``text_of`` fills. ``summaries`` follow the lines.
    """
    console = stdout_console()
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    table.add_column("case", no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    table.add_column("subject", no_wrap=True)
    for name in (measured, "IQR", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)

    is_counted = any(OURS_COUNTED in row.counts for row in report.rows)
    if is_counted:
        table.add_column("instr.", justify="right", no_wrap=True)

    def add(
        case: str,
        n: str,
        subject: str,
        spread: Spread,
        ratio: str,
        instructions: float | None,
        style: str = "",
    ) -> None:
        counted = ["" if instructions is None else f"{instructions:,.0f}"] if is_counted else []
        table.add_row(
            case,
            n,
            subject,
            encodable(text_of(spread), console),
            f"{spread.relative_iqr:.0%}",
            ratio,
            *counted,
            style=style,
        )

    for (case, n), rows in groupby(report.rows, key=lambda row: (row.case, row.n)):
        for place, row in enumerate(rows):
            if place == 0:
                add(case, f"{n:,}", "coresched", row.ours, "", row.counts.get(OURS_COUNTED), style="bold")
            add("", "", row.peer, row.theirs, ratio_text(row.ratio), row.counts.get(PEER_COUNTED))
    print_page(console, heading(report.command, report.machine), table, *summaries, notes=notes)
    if missing := absent():
        console.print(f"Left out, not installed: {', '.join(missing)} (pip install 'coresched[bench]').")


def print_page(console: Console, lines: Iterable[str], *tables: Table, notes: Iterable[str]) -> None:
    """The lines of a report, its tables and what the numbers mean, a blank line after each but the last."""
    for line in lines:
        console.print(line)
    console.print()
    for table in tables:
        console.print(table)
        console.print()
    for note in notes:
        console.print(note)


def encodable(text: str, console: Console) -> str:
    """A time as `time_text` gives it, for a terminal that may have ASCII only."""
    return text.replace("µ", "u") if console.options.ascii_only else text


def heading(command: str, machine: Machine) -> list[str]:
    """Command, date, versions and machine."""
    load = "" if machine.load is None else f", load {machine.load:.2f} at the start"
    return [
        f"$ {command}",
        f"{today()}, coresched {__version__}, {machine.python}, {machine.system}",
        f"{machine.cpu}, {machine.cores} cores{load}",
    ]


def time_text(seconds: float) -> str:
    """Three significant digits in the unit that gives one to three before the point."""
    for limit, factor, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if float(f"{seconds:.3g}") < limit:
            return f"{three_digits(seconds * factor)} {unit}"
    return f"{three_digits(seconds)} s"


def ratio_text(ratio: float) -> str:
    return f"{three_digits(ratio)}x"


def three_digits(value: float) -> str:
    """Three significant digits, or all before the point."""
    rounded = float(f"{value:.3g}")
    if rounded >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if rounded >= 10 else f"{value:.2f}"
