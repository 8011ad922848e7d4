"""How the cost of a pass grows with the queue, as one HTML page."""

from html import escape

from bench.results import heading, time_text
from bench.sglang_priority import names
from bench.sglang_priority.results import Report, engine_text
from coresched.lab.report.loglog import loglog_chart
from coresched.lab.report.style import STYLE
from coresched.lab.report.svg import Line

_MATCHING = {
    names.FCFS: "first",
    names.FCFS_REFRESHING: "b0",
    names.LPM_NO_LIMIT: "b1",
    names.DFS_WEIGHT: "b2",
    names.OURS_ALL_NEW: "b4",
    names.OURS_SOME_NEW[names.FEW_NEW]: "last",
    names.OURS_SOME_NEW[1]: "b3",
    names.OURS_SOME_NEW[100]: "w5",
}
_SORTING = {
    names.ROUTING_KEY: "first",
    names.PLAIN_NONE_NEW: "b1",
    names.PLAIN_ONE_LEFT: "b2",
    names.OURS_ONE_LEFT: "b4",
    names.OURS_NONE_NEW: "last",
}


def growth_page(report: Report) -> str:
    """Two charts over the queue length: passes that match prefixes, and those that only sort."""
    title = "One priority calculation in SGLang, over the waiting queue"
    lead = [*heading(report.command, report.machine), *engine_text(report.engine)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><main><h1>{escape(title)}</h1><p>{'<br>'.join(map(escape, lead))}</p>"
        f"<h2>Passes that match prefixes</h2>{_chart(report, _MATCHING)}"
        f"<h2>Passes that only sort</h2>{_chart(report, _SORTING)}"
        "</main></body></html>\n"
    )


def _chart(report: Report, styles: dict[str, str]) -> str:
    lines = [
        Line(
            policy,
            [(float(row.waiting), row.one_pass.median) for row in report.rows if row.policy == policy],
            style,
        )
        for policy, style in styles.items()
    ]
    return loglog_chart(lines, x_label="waiting requests", y_label="CPU time of a pass", y_text=time_text)
