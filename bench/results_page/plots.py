"""The forms of the page's plots: a row of dots each, points against a diagonal, lines over a size."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.results_page.scales import Scale
from bench.results_page.svg import COLOURS, RULE, Drawing, legend_height

WIDTH = 860.0
ROW, LABELS, RIGHT = 24.0, 200.0, 18.0


@dataclass(frozen=True)
class Mark:
    """One value in a row, of a group that has a colour; hollow where it may be chance."""

    value: float
    group: str
    sure: bool = True
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Row:
    label: str
    marks: tuple[Mark, ...]


def rows_plot(title: str, axis: str, rows: Sequence[Row], scale: Scale, *, at: float | None = 0.0) -> str:
    """A row of dots for each label, groups in colours, and a heavier rule ``at`` what they are held to."""
    groups = list(dict.fromkeys(mark.group for row in rows for mark in row.marks))
    legend = legend_height(WIDTH - LABELS, groups) if len(groups) > 1 else 0.0
    top = 30.0
    bottom = top + ROW * len(rows)
    drawing = Drawing(WIDTH, bottom + 42 + legend, title)
    drawing.text(8, 18, title, bold=True)

    def x(value: float) -> float:
        return LABELS + scale.place(value) * (WIDTH - LABELS - RIGHT)

    for value, text in scale.ticks:
        drawing.line(x(value), top, x(value), bottom)
        drawing.text(x(value), bottom + 16, text, anchor="middle")
    if at is not None:
        drawing.line(x(at), top, x(at), bottom, RULE, 1.6)
    drawing.text((LABELS + WIDTH - RIGHT) / 2, bottom + 33, axis, anchor="middle")
    for number, row in enumerate(rows):
        middle = top + ROW * (number + 0.5)
        drawing.line(LABELS, top + ROW * number, WIDTH - RIGHT, top + ROW * number)
        drawing.text(LABELS - 12, middle + 4, row.label, anchor="end")
        for mark in row.marks:
            place = groups.index(mark.group)
            spread = (place + 0.5) / len(groups) - 0.5 if len(groups) > 1 else 0.0
            y, colour = middle + spread * (ROW - 10), COLOURS[place % len(COLOURS)]
            if mark.low is not None and mark.high is not None:
                drawing.line(x(mark.low), y, x(mark.high), y, colour, 2)
            drawing.dot(x(mark.value), y, colour, filled=mark.sure, radius=3.5)
    if legend:
        drawing.legend(LABELS, bottom + 54, groups)
    return drawing.svg()


@dataclass(frozen=True)
class Point:
    """Beside each other: what was published and what was simulated, say."""

    x: float
    y: float
    group: str


def diagonal_plot(title: str, x_axis: str, y_axis: str, points: Sequence[Point], scale: Scale) -> str:
    """Points on equal axes; on the diagonal both agree."""
    size, left, top = 420.0, 70.0, 34.0
    groups = list(dict.fromkeys(point.group for point in points))
    drawing = Drawing(WIDTH, top + size + 52, title)
    drawing.text(8, 18, title, bold=True)

    def x(value: float) -> float:
        return left + scale.place(value) * size

    def y(value: float) -> float:
        return top + (1 - scale.place(value)) * size

    for value, text in scale.ticks:
        drawing.line(x(value), top, x(value), top + size)
        drawing.line(left, y(value), left + size, y(value))
        drawing.text(x(value), top + size + 16, text, anchor="middle")
        drawing.text(left - 8, y(value) + 4, text, anchor="end")
    drawing.line(x(scale.low), y(scale.low), x(scale.high), y(scale.high), RULE, 1.6)
    drawing.text(left + size / 2, top + size + 36, x_axis, anchor="middle")
    drawing.text(18, top + size / 2, y_axis, anchor="middle", turn=-90)
    for point in points:
        colour = COLOURS[groups.index(point.group) % len(COLOURS)]
        drawing.dot(x(point.x), y(point.y), colour, filled=False, radius=3)
    for number, name in enumerate(groups):
        drawing.dot(left + size + 34, top + 16 + 20 * number, COLOURS[number % len(COLOURS)])
        drawing.text(left + size + 46, top + 20 + 20 * number, name)
    return drawing.svg()


@dataclass(frozen=True)
class Line:
    label: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Panel:
    """One small chart; the first line is ours."""

    title: str
    lines: tuple[Line, ...]


def panels_plot(
    title: str, x_axis: str, y_axis: str, panels: Sequence[Panel], across: Scale, up: Scale
) -> str:
    """Small charts on the same axes, two a row; colours are by label, the same in all."""
    columns, left, gap = 2, 62.0, 30.0
    wide, tall = (WIDTH - left - gap - RIGHT) / columns - 20, 190.0
    labels = list(dict.fromkeys(line.label for panel in panels for line in panel.lines))
    legend = legend_height(WIDTH - left, labels)
    rows = -(-len(panels) // columns)
    drawing = Drawing(WIDTH, 34 + rows * (tall + 58) + 24 + legend, title)
    drawing.text(8, 18, title, bold=True)
    for number, panel in enumerate(panels):
        x0 = left + (number % columns) * (wide + gap + 40)
        y0 = 52 + (number // columns) * (tall + 58)
        drawing.text(x0, y0 - 8, panel.title, bold=True)
        for value, text in across.ticks:
            place = x0 + across.place(value) * wide
            drawing.line(place, y0, place, y0 + tall)
            drawing.text(place, y0 + tall + 15, text, anchor="middle")
        for value, text in up.ticks:
            place = y0 + (1 - up.place(value)) * tall
            drawing.line(x0, place, x0 + wide, place)
            drawing.text(x0 - 6, place + 4, text, anchor="end")
        for line in panel.lines:
            colour = COLOURS[labels.index(line.label) % len(COLOURS)]
            points = [
                (x0 + across.place(n) * wide, y0 + (1 - up.place(value)) * tall) for n, value in line.points
            ]
            drawing.curve(points, colour, 2.4 if line is panel.lines[0] else 1.6)
            for x, y in points:
                drawing.dot(x, y, colour, radius=2)
    end = 34 + rows * (tall + 58)
    drawing.text(WIDTH / 2, end + 10, f"{y_axis} over {x_axis}", anchor="middle")
    drawing.legend(left, end + 32, labels)
    return drawing.svg()
