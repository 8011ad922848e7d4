"""Line charts with logarithmic axes as inline SVG, for what grows with a size."""

from collections.abc import Callable, Sequence
from html import escape
from math import ceil, floor, log10

from coresched.lab.report.svg import BOTTOM, HEIGHT, TOP, WIDTH, Line, axis_names, curve

LEFT, RIGHT = 88, 36  # for decades with their unit beside the axis' name, and for a long last one


def loglog_chart(
    lines: Sequence[Line], *, x_label: str, y_label: str, y_text: Callable[[float], str] = "{:g}".format
) -> str:
    """Draw curves over decades with axes, grid and a legend below; a power law is a straight line.

    Each point is marked. ``y_text`` writes a decade at the y axis. Raises ValueError where there is no point,
    or a coordinate is not above 0.
    """
    points = [point for line in lines for point in line.points]
    if not points or min(min(point) for point in points) <= 0:
        raise ValueError("a chart with logarithmic axes must have points, and all coordinates above 0")
    x_low, x_high = decades([x for x, _ in points])
    y_low, y_high = decades([y for _, y in points])
    plot_width, plot_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(value: float) -> float:
        return LEFT + (log10(value) - x_low) / (x_high - x_low) * plot_width

    def y(value: float) -> float:
        return TOP + (1 - (log10(value) - y_low) / (y_high - y_low)) * plot_height

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(y_label)} over {escape(x_label)}, both logarithmic">'
    ]
    for power in range(y_low, y_high + 1):
        place = y(10.0**power)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{place:.1f}" y2="{place:.1f}"/>'
            f'<text class="tick" x="{LEFT - 8}" y="{place + 4:.1f}" text-anchor="end">'
            f"{escape(y_text(10.0**power))}</text>"
        )
    for power in range(x_low, x_high + 1):
        parts.append(
            f'<text class="tick" x="{x(10.0**power):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
            f"{_decade(power)}</text>"
        )
    parts.append(axis_names(x_label, y_label, x=LEFT + plot_width / 2, y_left=12))
    for line in lines:
        parts.append(curve(line, x, y))
        parts += [
            f'<circle class="curve {line.style}" cx="{x(px):.1f}" cy="{y(py):.1f}" r="2.5"/>'
            for px, py in line.points
        ]
    parts.append("</svg>")
    legend = "".join(f'<span><i class="key {line.style}"></i>{escape(line.label)}</span>' for line in lines)
    return f'{"".join(parts)}<div class="legend">{legend}</div>'


def _decade(power: int) -> str:
    return f"{10**power:,}" if power >= 0 else f"{10.0**power:g}"


def decades(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten that enclose the values, at least one apart. All must be above 0."""
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    return low, max(high, low + 1)
