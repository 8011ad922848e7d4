"""How the cost of an operation grows with the size."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import log

from rich.table import Table

from bench.results import Row, ratio_text

OURS = "coresched"


@dataclass(frozen=True)
class Growth:
    """The cost of one subject as ``n ** exponent``, fitted over its sizes."""

    case: str
    subject: str
    smallest: int
    largest: int
    exponent: float

    @property
    def a_decade(self) -> float:
        """How many times as much an operation costs at ten times the size."""
        return float(10.0**self.exponent)


def growths(rows: Iterable[Row]) -> list[Growth]:
    """One for each subject of each case that was timed at two sizes or more, cases in their order."""
    found = []
    for case, of_case in groupby(rows, key=lambda row: row.case):
        points: dict[str, dict[int, float]] = {}
        for row in of_case:
            points.setdefault(OURS, {})[row.n] = row.ours.median
            points.setdefault(row.peer, {})[row.n] = row.theirs.median
        found += [
            Growth(case, subject, min(by_size), max(by_size), exponent(list(by_size.items())))
            for subject, by_size in points.items()
            if len(by_size) > 1
        ]
    return found


def exponent(points: Sequence[tuple[int, float]]) -> float:
    """The slope of log(cost) over log(n), by least squares. Sizes must differ."""
    xs = [log(n) for n, _ in points]
    ys = [log(cost) for _, cost in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - mean_x) ** 2 for x in xs)


def growth_table(found: Sequence[Growth]) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    for name in ("case", "subject"):
        table.add_column(name, no_wrap=True)
    for name in ("n", "grows as", "at 10 n"):
        table.add_column(name, justify="right", no_wrap=True)
    for _, of_case in groupby(found, key=lambda growth: growth.case):
        for place, growth in enumerate(of_case):
            table.add_row(
                growth.case if place == 0 else "",
                growth.subject,
                f"{short(growth.smallest)} to {short(growth.largest)}",
                f"n^{growth.exponent:.2f}",
                ratio_text(growth.a_decade),
                style="bold" if growth.subject == OURS else "",
            )
    return table


def short(size: int) -> str:
    """10k for 10,000, 1M for a million; others in full."""
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{name}"
    return f"{size:,}"


def growth_as_json(growth: Growth) -> dict[str, object]:
    return {
        "case": growth.case,
        "subject": growth.subject,
        "from": growth.smallest,
        "to": growth.largest,
        "exponent": growth.exponent,
    }
