"""The service benchmark's results, as JSON and as a table."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.table import Table

from bench.results import Report, encodable, heading, print_page, ratio_text, time_text, today
from bench.serving.turns import Turns
from bench.spread import Spread
from coresched import __version__
from coresched.cli.terminal import stdout_console

NOTES = (
    "A call is a Route or a Release, in turns; n: calls outstanding. calls/s, p50 and",
    "p99: as the client sees them. CPU: of all threads of the server, a call; in",
    "process: of the caller. IQR: interquartile range over median, of the CPU. ratio:",
    "our CPU over the echo's, median of the rounds.",
)


@dataclass(frozen=True)
class Served:
    """Ours beside the echo over one transport. ``ratio``, ``p50_ratio``: ours over the echo's, by rounds."""

    case: str
    n: int
    ours: Turns
    echo: Turns
    ratio: Spread
    p50_ratio: Spread


@dataclass(frozen=True)
class ServiceReport:
    """``in_process``: CPU seconds a call without any transport, by subject."""

    report: Report
    in_process: Mapping[str, Spread]
    rows: Sequence[Served]


def as_json(found: ServiceReport) -> str:
    return json.dumps(
        {
            "command": found.report.command,
            "date": today(),
            "version": __version__,
            "machine": asdict(found.report.machine),
            "in_process": [
                {"subject": subject, "cpu_s": cpu.median, "cpu_spread_s": [cpu.q1, cpu.q3]}
                for subject, cpu in found.in_process.items()
            ],
            "rows": [_row_as_json(row, found.report.repeats) for row in found.rows],
        },
        indent=2,
    )


def _row_as_json(row: Served, repeats: int) -> dict[str, object]:
    return {
        "case": row.case,
        "n": row.n,
        **_turns_as_json("ours", row.ours),
        "peer": "echo",
        **_turns_as_json("peer", row.echo),
        "ratio": row.ratio.median,
        "ratio_spread": [row.ratio.q1, row.ratio.q3],
        "p50_ratio": row.p50_ratio.median,
        "p50_ratio_spread": [row.p50_ratio.q1, row.p50_ratio.q3],
        "repeats": repeats,
    }


def _turns_as_json(side: str, turns: Turns) -> dict[str, object]:
    flat: dict[str, object] = {f"{side}_calls_per_s": 1 / turns.call.median}
    for name, spread in (("call", turns.call), ("p50", turns.p50), ("p99", turns.p99), ("cpu", turns.cpu)):
        flat[f"{side}_{name}_s"] = spread.median
        flat[f"{side}_{name}_spread_s"] = [spread.q1, spread.q3]
    return flat


def print_report(found: ServiceReport) -> None:
    console = stdout_console()
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    table.add_column("case", no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    table.add_column("subject", no_wrap=True)
    for name in ("calls/s", "p50", "p99", "CPU", "IQR", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)

    def shown(spread: Spread) -> str:
        return encodable(time_text(spread.median), console)

    def add(case: str, n: str, subject: str, turns: Turns, ratio: str = "", style: str = "") -> None:
        rate, iqr = f"{1 / turns.call.median:,.0f}", f"{turns.cpu.relative_iqr:.0%}"
        times = map(shown, (turns.p50, turns.p99, turns.cpu))
        table.add_row(case, n, subject, rate, *times, iqr, ratio, style=style)

    for place, (subject, cpu) in enumerate(found.in_process.items()):
        case, n = ("", "") if place else ("in process", "1")
        table.add_row(case, n, subject, "", "", "", shown(cpu), f"{cpu.relative_iqr:.0%}", "")
    for row in found.rows:
        add(row.case, f"{row.n}", "coresched", row.ours, ratio_text(row.ratio.median), "bold")
        add("", "", "echo", row.echo)
    print_page(console, heading(found.report.command, found.report.machine), table, notes=NOTES)
