"""Line charts as inline SVG."""

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from math import floor, log10

from coresched.lab.report.series import Points

WIDTH, HEIGHT = 860, 300
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 14, 44


@dataclass(frozen=True)
class Line:
    """One curve; ``style`` is a CSS class of the page."""

    label: str
    points: Points
    style: str


def line_chart(
    lines: list[Line], *, x_label: str, y_label: str, x_max: float, y_max: float, percent: bool = False
) -> str:
    """Draw curves over 0 to ``x_max`` and 0 to ``y_max`` with axes, grid and a legend below."""
    x_ticks, y_ticks = ticks(x_max), ticks(y_max)
    y_top = max(y_max, y_ticks[-1])
    plot_width, plot_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(value: float) -> float:
        return LEFT + value / x_max * plot_width

    def y(value: float) -> float:
        return TOP + (1 - value / y_top) * plot_height

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(y_label)} over {escape(x_label)}">'
    ]
    for tick in y_ticks:
        text = f"{tick:.0%}" if percent else f"{tick:g}"
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
        )
        parts.append(
            f'<text class="tick" x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{text}</text>'
        )
    for tick in x_ticks:
        parts.append(
            f'<text class="tick" x="{x(tick):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
            f"{tick:g}</text>"
        )
    parts.append(axis_names(x_label, y_label, x=LEFT + plot_width / 2, y_left=14))
    parts += [curve(line, x, y) for line in lines]
    parts.append("</svg>")
    named = dict.fromkeys((line.label, line.style) for line in lines)
    legend = "".join(f'<span><i class="key {style}"></i>{escape(label)}</span>' for label, style in named)
    return f'{"".join(parts)}<div class="legend">{legend}</div>'


def axis_names(x_label: str, y_label: str, *, x: float, y_left: int) -> str:
    """What the axes are called: below, in the middle at ``x``, and upwards, ``y_left`` from the left edge."""
    middle = TOP + (HEIGHT - TOP - BOTTOM) / 2
    return (
        f'<text class="axis" x="{x:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>'
        f'<text class="axis" transform="translate({y_left} {middle:.0f}) rotate(-90)" '
        f'text-anchor="middle">{escape(y_label)}</text>'
    )


def curve(line: Line, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    """A line through its points, which ``x`` and ``y`` bring into the plot."""
    path = " ".join(f"{x(px):.1f},{y(py):.1f}" for px, py in line.points)
    return (
        f'<polyline class="curve {line.style}" points="{path}"><title>{escape(line.label)}</title></polyline>'
    )


def ticks(most: float, wanted: int = 5) -> list[float]:
    """Round values from 0 up to ``most``, about ``wanted`` of them, 1, 2 or 5 times a power of ten apart."""
    if most <= 0:
        return [0.0, 1.0]
    rough = most / wanted
    power = 10.0 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    return [position * step for position in range(floor(most / step + 1e-9) + 1)] or [0.0]
