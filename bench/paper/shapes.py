"""What a published figure shows beyond its numbers, and whether the simulated one shows it too.

Where the seeds decide, a claim needs the 95 % interval of the median (`coresched.lab.advice.judgement`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

from bench.paper.experiments import Cell, published
from bench.paper.figure3 import TOLERANCE, WORKLOADS
from bench.paper.runs import Result, Results, makespan_min, of, one, paired
from coresched.lab.advice.judgement import Interval, interval

Verdict = Literal["reproduces", "in part", "does not"]

PART: Final = 0.5
"""An effect of the right sign and at least so large a share of the published one is reproduced in part."""


@dataclass(frozen=True)
class Shape:
    """One claim of a figure."""

    experiment: str
    workload: str
    claim: str
    published: str
    simulated: str
    verdict: Verdict


def figure3(results: Results) -> Iterator[Shape]:
    """Where concurrency begins to hurt at each ratio, and the best cell."""
    for name in WORKLOADS:
        cells = of(results, experiment="Figure 3", workload=name)
        rows = list(dict.fromkeys(cell.row for cell in cells))
        same = near = 0
        for row in rows:
            grid = of(results, experiment="Figure 3", workload=name, row=row)
            theirs = _cliff([cell.published_min for cell in grid])
            ours = _cliff([makespan_min(cell, results) for cell in grid])
            same += theirs == ours
            near += abs(theirs - ours) <= 1
        verdict: Verdict = (
            "reproduces" if same == len(rows) else "in part" if near == len(rows) else "does not"
        )
        yield Shape(
            "Figure 3",
            name,
            "highest C_S before the cliff, by ratio",
            f"{len(rows)} ratios",
            f"{same} the same, {near} within one step",
            verdict,
        )
        best = min(cells, key=lambda cell: cell.published_min or 1e9)
        found = min(cells, key=lambda cell: makespan_min(cell, results) or 1e9)
        least, there = makespan_min(found, results), makespan_min(best, results)
        worth = there is not None and least is not None and there <= least * 1.02
        yield Shape(
            "Figure 3",
            name,
            "best cell",
            f"{best.row}, {best.column}: {best.published_min:.1f}",
            f"{found.row}, {found.column}: {least:.1f}; theirs {_text(there)}",
            "reproduces" if worth else "does not",
        )


def _cliff(makespans: list[float | None]) -> int:
    """How many of the concurrencies, from the first, are within TOLERANCE of the best so far."""
    best = float("inf")
    for place, makespan in enumerate(makespans):
        if makespan is None or makespan > best * (1 + TOLERANCE):
            return place
        best = min(best, makespan)
    return len(makespans)


def figure6(results: Results) -> Iterator[Shape]:
    """Which order wins where concurrency is high, and what ordering costs."""
    for name, found in published()["figure6"].items():
        most = f"{found['concurrencies'][-1]}"
        cells = {
            policy: one(results, experiment="Figure 6", workload=name, row=policy, column=most)
            for policy in found["makespans_by_policy"]
        }
        yield _ranking("Figure 6", name, f"policies at C_S {most}, best first", cells, results)
        rp, fcfs = cells["routing-prefix"], cells["fcfs"]
        yield _effect("Figure 6", name, f"RP against FCFS at C_S {most}", rp, fcfs, results)
        table = published()["table1"][name]["seconds_by_policy"]
        ours = {
            policy: median(result.priority_calculation_s for result in results[cells[policy]])
            for policy in table
        }
        yield Shape(
            "Table 1",
            name,
            "ordering time, least first (s)",
            ", ".join(f"{policy} {table[policy]:.0f}" for policy in sorted(table, key=table.__getitem__)),
            ", ".join(f"{policy} {ours[policy]:.0f}" for policy in sorted(ours, key=ours.__getitem__)),
            "reproduces"
            if sorted(table, key=table.__getitem__) == sorted(ours, key=ours.__getitem__)
            else "does not",
        )


def figure8(results: Results) -> Iterator[Shape]:
    """What LBCH saves over the other routers, and how even the load is."""
    for name, found in published()["figure8"].items():
        cells = {
            router: one(results, experiment="Figure 8", workload=name, row=router)
            for router in found["makespans_by_router"]
        }
        for other in ("cache-aware", "consistent-hash"):
            yield _effect("Figure 8", name, f"LBCH against {other}", cells["lbch"], cells[other], results)
        printed = published()["figure10"].get(name, {}).get("request_imbalance_by_router")
        if printed is None:
            continue
        ours = {
            router: median(r.request_imbalance or 0.0 for r in results[cell])
            for router, cell in cells.items()
        }
        same = sorted(printed, key=printed.__getitem__) == sorted(ours, key=ours.__getitem__)
        yield Shape(
            "Figure 10",
            name,
            "request imbalance, least first (%)",
            _percents(printed),
            _percents(ours),
            "reproduces" if same else "does not",
        )


def figure11(results: Results) -> Iterator[Shape]:
    """What admission apart from environment slots saves, and what CAAS adds."""
    for limit in published()["figure11"]["makespans_by_environment_concurrency"]:
        row = f"C_E {limit}"
        cells = {cell.column: cell for cell in of(results, experiment="Figure 11", row=row)}
        yield _effect(
            "Figure 11",
            "MCP-Atlas",
            f"C_S 10 against one limit, {row}",
            cells["10"],
            cells["unified"],
            results,
        )
        printed = published()["figure12"]
        for of_what, key, value in (
            ("makespan", "caas_saves_makespan", _makespan),
            ("L5", "caas_saves_tail", lambda result: result.tail_min),
        ):
            found = interval(paired(cells["50 caas"], cells["50"], results, value))
            yield _judged(
                "Figure 12",
                "MCP-Atlas",
                f"CAAS against FCFS at C_S 50, {row}: {of_what}",
                -printed[key][limit],
                found,
            )


def table2(results: Results) -> Iterator[Shape]:
    """The order of the live runs, and what coordination saves."""
    for name in ("SWE live", "WideSearch live", "BFCL live"):
        cells = {cell.row: cell for cell in of(results, experiment="Table 2", workload=name)}
        yield _ranking("Table 2", name, "runs, best first", cells, results)
        for row in cells:
            if row != "coordinated":
                yield _effect(
                    "Table 2", name, f"coordinated against {row}", cells["coordinated"], cells[row], results
                )


SHAPES: Final[dict[str, Callable[[Results], Iterator[Shape]]]] = {
    "figure3": figure3,
    "figure6": figure6,
    "figure8": figure8,
    "figure11": figure11,
    "table2": table2,
}


def _makespan(result: Result) -> float:
    return result.makespan_min


def _ranking(experiment: str, workload: str, claim: str, cells: dict[str, Cell], results: Results) -> Shape:
    """Cells within 2 % of each other count as equal, and may stand in either order."""
    theirs = {name: cell.published_min or cell.limit_min or 0.0 for name, cell in cells.items()}
    ours = {name: median(map(_makespan, results[cell])) for name, cell in cells.items()}
    swapped = [
        (a, b) for a in cells for b in cells if theirs[a] < theirs[b] * 0.98 and ours[a] > ours[b] * 1.02
    ]
    return Shape(
        experiment,
        workload,
        claim,
        " < ".join(sorted(theirs, key=theirs.__getitem__)),
        " < ".join(sorted(ours, key=ours.__getitem__)),
        "does not" if swapped else "reproduces",
    )


def _effect(experiment: str, workload: str, claim: str, cell: Cell, other: Cell, results: Results) -> Shape:
    """How much longer one run takes than the other, as a share; below 0 it saves."""
    found = interval(paired(cell, other, results, _makespan))
    if cell.published_min is None or other.published_min is None:
        if cell.limit_min is None or other.limit_min is None or cell.published_min is None:
            raise ValueError(f"{claim} has no published number")
        return _judged(
            experiment, workload, claim, cell.published_min / other.limit_min - 1, found, "at most "
        )
    return _judged(experiment, workload, claim, cell.published_min / other.published_min - 1, found)


def _judged(
    experiment: str, workload: str, claim: str, printed: float, found: Interval, bound: str = ""
) -> Shape:
    sure = found.high < 0 if printed < 0 else found.low > 0
    enough = abs(found.median) >= PART * abs(printed) and abs(found.median) <= abs(printed) / PART
    verdict: Verdict = "does not"
    if sure:
        verdict = "reproduces" if enough or bound else "in part"
    return Shape(
        experiment,
        workload,
        claim,
        f"{bound}{printed * 100:+.1f} %",
        f"{found.median * 100:+.1f} % ({found.low * 100:+.1f} to {found.high * 100:+.1f})",
        verdict,
    )


def _percents(shares: dict[str, float]) -> str:
    return ", ".join(f"{name} {shares[name] * 100:.0f}" for name in sorted(shares, key=shares.__getitem__))


def _text(minutes: float | None) -> str:
    return "stopped" if minutes is None else f"{minutes:.1f}"
