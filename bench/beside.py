"""The ratios at about 10,000 elements, in one table: beside the twin, the best of Python, and the floor."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.table import Table

from bench.cases import TWIN
from bench.cases.lbch import VIRTUAL_NODES
from bench.overhead_page import FLOOR
from bench.results import Row, ratio_text

ELEMENTS = 10_000


@dataclass(frozen=True)
class Beside:
    """Ours at one size. ``twin`` and ``best``: a peer's cost over ours; ``floor``: ours over the floor's."""

    case: str
    elements: int
    twin: float
    best_peer: str
    best: float
    floor: float | None


def beside_at_ten_thousand(rows: Sequence[Row]) -> list[Beside]:
    """One for each case that was timed at that size; a worker of LBCH counts as its points on the ring."""
    found = []
    for (case, n), of_case in groupby(rows, key=lambda row: (row.case, row.n)):
        elements = n * VIRTUAL_NODES if case.startswith("lbch") else n
        if not 0.9 * ELEMENTS < elements < 1.1 * ELEMENTS:
            continue
        ratios = {row.peer: row.ratio for row in of_case}
        floor = next((1 / ratio for peer, ratio in ratios.items() if peer.startswith(FLOOR)), None)
        python = {peer: ratio for peer, ratio in ratios.items() if not peer.startswith(FLOOR)}
        best = min(python, key=python.__getitem__)
        found.append(Beside(case, elements, python[TWIN], best, python[best], floor))
    return found


def beside_table(found: Sequence[Beside]) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    table.add_column("case", no_wrap=True)
    for name in ("elements", "twin", "Python"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("floor", justify="right", no_wrap=True)
    for one in found:
        table.add_row(
            one.case,
            f"{one.elements:,}",
            ratio_text(one.twin),
            ratio_text(one.best),
            one.best_peer,
            "" if one.floor is None else ratio_text(one.floor),
        )
    return table
