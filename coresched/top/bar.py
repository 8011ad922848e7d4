"""A bar of several parts, each as long as its share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment


class Part(NamedTuple):
    """`sign` fills its place."""

    name: str
    value: int
    sign: str
    style: str


class Bar:
    """As wide as there is room."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part, length in zip(self._parts, lengths(self._parts, options.max_width), strict=True):
            if length:
                yield Segment(part.sign * length, console.get_style(part.style or "none"))
        yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(4, options.max_width)


def lengths(parts: Sequence[Part], width: int) -> list[int]:
    """Columns of each part, `width` in all unless all are 0; what is not 0 has one where there is room."""
    total = sum(part.value for part in parts)
    if total <= 0:
        return [0] * len(parts)
    shown = sum(part.value > 0 for part in parts)
    least = 1 if shown <= width else 0
    spare = width - least * shown
    columns = []
    done = before = 0
    for part in parts:
        # The running sum is rounded, so that there is no gap and no overlap.
        done += part.value
        end = done * spare // total
        columns.append(end - before + (least if part.value > 0 else 0))
        before = end
    return columns
