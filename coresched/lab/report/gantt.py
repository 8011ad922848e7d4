"""What each trajectory of a replay did when, as inline SVG: a row a trajectory, in order of admission."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Final

from coresched.lab.replay.events import (
    Admission,
    AnyEvent,
    EnvironmentStage,
    FailedInference,
    Inference,
)
from coresched.lab.report.svg import ticks
from coresched.lab.units import TimeUnit

WIDTH: Final = 860
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 8, 40
MOST_HEIGHT: Final = 560
HIGHEST_ROW, LOWEST_ROW = 14.0, 2.0
NARROWEST: Final = 0.35
"""A bar is at least so many units wide, or it would not be seen; there are WIDTH of them."""

KINDS: Final = (
    ("inference", "model call"),
    ("waiting", "waiting for an environment slot"),
    ("environment", "environment stage"),
    ("failed", "failed request"),
)
"""CSS class and name of each kind of bar."""

Bar = tuple[float, float, str]
"""(start, end, kind), in seconds since the batch began."""


def gantt_rows(events: Sequence[AnyEvent]) -> dict[str, list[Bar]]:
    """The bars of each sample, by its name, in order of admission."""
    rows: dict[str, list[Bar]] = {}
    for event in events:
        if isinstance(event, Admission):
            rows.setdefault(event.sample, [])
    for event in events:
        if event.sample not in rows:
            continue
        row = rows[event.sample]
        if isinstance(event, Inference):
            row.append((event.sent_s, event.ended_s, "inference"))
        elif isinstance(event, FailedInference):
            row.append((event.sent_s, event.ended_s, "failed"))
        elif isinstance(event, EnvironmentStage):
            row.append((event.requested_s, event.started_s, "waiting"))
            row.append((event.started_s, event.ended_s, "environment"))
    return rows


def gantt_chart(events: Sequence[AnyEvent], unit: TimeUnit, end_s: float) -> str:
    """The bars of all samples over 0 to ``end_s``, and what their colours mean."""
    rows = gantt_rows(events)
    height = max(LOWEST_ROW, min(HIGHEST_ROW, MOST_HEIGHT / max(1, len(rows))))
    plot_width, plot_height = WIDTH - LEFT - RIGHT, height * len(rows)
    total = TOP + plot_height + BOTTOM

    def x(seconds: float) -> float:
        return LEFT + seconds / end_s * plot_width

    parts = [f'<svg viewBox="0 0 {WIDTH} {total:.1f}" role="img" aria-label="trajectories over time">']
    for tick in ticks(unit.scale(end_s)):
        at = x(tick * unit.seconds)
        parts.append(
            f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{TOP + plot_height:.1f}"/>'
            f'<text class="tick" x="{at:.1f}" y="{TOP + plot_height + 16:.1f}" text-anchor="middle">'
            f"{tick:g}</text>"
        )
    parts.append(
        f'<text class="axis" x="{LEFT + plot_width / 2:.0f}" y="{total - 6:.1f}" text-anchor="middle">'
        f"time ({unit.name})</text>"
        f'<text class="axis" transform="translate(14 {TOP + plot_height / 2:.0f}) rotate(-90)" '
        f'text-anchor="middle">trajectories</text>'
    )
    for number, (sample, bars) in enumerate(rows.items()):
        top = TOP + number * height
        drawn = _drawn(bars, x, top + 0.08 * height, 0.84 * height)
        parts.append(f"<g><title>{escape(sample)}</title>{drawn}</g>")
    parts.append("</svg>")
    there = {kind for bars in rows.values() for start, end, kind in bars if end > start}
    legend = "".join(
        f'<span><i class="box {kind}"></i>{name}</span>' for kind, name in KINDS if kind in there
    )
    return f'{"".join(parts)}<div class="legend">{legend}</div>'


def _drawn(bars: Sequence[Bar], x: Callable[[float], float], top: float, height: float) -> str:
    """One path a kind, so that a batch of ten thousand turns stays a page that opens."""
    paths = []
    for kind, _ in KINDS:
        boxes = [
            f"M{x(start):.2f} {top:.1f}h{max(NARROWEST, x(end) - x(start)):.2f}v{height:.2f}H{x(start):.2f}z"
            for start, end, of in bars
            if of == kind and end > start
        ]
        if boxes:
            paths.append(f'<path class="{kind}" d="{"".join(boxes)}"/>')
    return "".join(paths)
