"""`python -m bench overhead --plot`: the cost of an operation over the size, a chart for each case."""

from collections.abc import Sequence
from html import escape
from itertools import groupby

from bench.growth import OURS
from bench.results import Report, Row, heading, time_text
from coresched.lab.report.loglog import loglog_chart
from coresched.lab.report.style import STYLE
from coresched.lab.report.svg import Line

TITLE = "The scheduler's own cost an operation"
FLOOR = "floor: "
_STYLES = ("b2", "b1", "b3", "b4", "b0", "w5", "w1")


def overhead_page(report: Report) -> str:
    """One HTML page with a chart for each case that was timed at two sizes or more."""
    charts = "".join(
        f"<h2>{escape(case)}</h2>{growth_chart(rows)}"
        for case, rows in cases_of(report.rows)
        if len({row.n for row in rows}) > 1
    )
    lead = heading(report.command, report.machine)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(TITLE)}</title><style>{STYLE}</style></head>\n"
        f"<body><main><h1>{escape(TITLE)}</h1><p>{'<br>'.join(map(escape, lead))}</p>"
        f"{charts}</main></body></html>\n"
    )


def cases_of(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    return [(case, list(found)) for case, found in groupby(rows, key=lambda row: row.case)]


def growth_chart(rows: Sequence[Row]) -> str:
    """The subjects of one case over its sizes: ours in the colour that stands out, the floor in grey."""
    peers = list(dict.fromkeys(row.peer for row in rows))
    ours = {float(row.n): row.ours.median for row in rows}
    styles = iter(_STYLES)
    lines = [
        Line(
            peer,
            [(float(row.n), row.theirs.median) for row in rows if row.peer == peer],
            "first" if peer.startswith(FLOOR) else next(styles),
        )
        for peer in peers
    ]
    return loglog_chart(
        [*lines, Line(OURS, list(ours.items()), "last")],
        x_label="n",
        y_label="CPU time of an operation",
        y_text=time_text,
    )
