"""What scheduling costs, and how well capacity is estimated."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from bench.results import ratio_text, time_text
from bench.results_page.markdown import command_block, image, table
from bench.results_page.plots import Line, Mark, Panel, Row, panels_plot, rows_plot
from bench.results_page.scales import log_scale, percent_scale

OURS: Final = "coresched"
TWIN: Final = "python-twin"
FLOOR: Final = "floor"
Rows = Sequence[Mapping[str, Any]]


def plots(overhead: Mapping[str, Any], capacity: Mapping[str, Any]) -> dict[str, str]:
    rows = overhead["rows"]
    panels = [
        Panel(case, tuple(_lines(list(found)))) for case, found in groupby(rows, key=lambda row: row["case"])
    ]
    times = [row[name] for row in rows for name in ("ours_s", "peer_s")]
    marks: dict[str, list[Mark]] = {}
    for one in capacity["out_of_sample"]:
        if one["median"] is not None:
            marks.setdefault(one["estimator"], []).append(Mark((one["median"] - 1) * 100, one["workload"]))
    shown = [Row(estimator, tuple(found)) for estimator, found in marks.items()]
    return {
        "overhead": panels_plot(
            "CPU time of one operation",
            "elements",
            "seconds",
            panels,
            log_scale([row["n"] for row in rows], _size),
            log_scale(times, lambda seconds: time_text(seconds).replace(".0 ", " ").replace(".00 ", " ")),
        ),
        "capacity": rows_plot(
            "Planned on one half of a batch, run on the other",
            "makespan over the best cell of a grid, % above: a dot a workload, median of seeds",
            shown,
            percent_scale([mark.value for row in shown for mark in row.marks]),
        ),
    }


def overhead_text(told: Mapping[str, Any]) -> str:
    machine = told["machine"]
    load = "" if machine["load"] is None else f", load {machine['load']:.1f} at the start"
    return "\n\n".join(
        [
            "## What scheduling costs",
            "CPU time of one operation of the compiled core and of its peers, timed in turns in one "
            "process: medians. *python-twin* is the readable specification that tests hold the core to.",
            command_block(told),
            f"{machine['cpu']}, {machine['cores']} cores, {machine['python']}{load}.",
            image("overhead", "CPU time of an operation over the number of elements, by case"),
            table(
                ["case", "elements", "coresched", "python-twin", "fastest other", "floor"],
                _largest_common(told["rows"]),
            ),
            "The elements nearest to 10,000 that were timed. A factor is the peer's time over ours. "
            "*floor*: the least that the decision takes, compiled, without Python. A priority calculation "
            "on SGLang's own requests and radix tree, beside its LPM and DFS-weight, is `python -m bench "
            "sglang-priority`, in [benchmarks](benchmarks.md#a-priority-calculation-in-sglang).",
        ]
    )


def capacity_text(told: Mapping[str, Any]) -> str:
    rows = told["out_of_sample"]
    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    estimators = list(dict.fromkeys(row["estimator"] for row in rows))
    of = {(row["estimator"], row["workload"]): row for row in rows}
    cells = [
        [name, *(_ratios(of[name, workload]) if (name, workload) in of else "" for workload in workloads)]
        for name in estimators
    ]
    return "\n\n".join(
        [
            "## How many samples fit",
            "r and C_S planned on every other trajectory of a batch, simulated on the rest: the makespan "
            "over that of the best (r, C_S) of a grid, the median and the worst seed.",
            command_block(told),
            image("capacity", "Makespan over the best cell of a grid, by estimator"),
            table(["estimator", *workloads], cells),
            "*peak* is what `coresched plan` uses; *peak, told* plans on the very half that is run; "
            "*cannot run*: the planned pools do not hold the longest trajectory of the other half. More in "
            "[capacity](capacity.md) and [benchmarks](benchmarks.md#capacity-estimators).",
        ]
    )


def _ratios(row: Mapping[str, Any]) -> str:
    def text(ratio: float | None) -> str:
        return "cannot run" if ratio is None else f"{ratio:.3f}"

    return f"{text(row['median'])}, {text(row['worst'])}"


def _lines(rows: Rows) -> Iterator[Line]:
    ours = {row["n"]: row["ours_s"] for row in rows}
    yield Line(OURS, tuple(sorted(ours.items())))
    for peer in dict.fromkeys(row["peer"] for row in rows):
        yield Line(peer, tuple(sorted((row["n"], row["peer_s"]) for row in rows if row["peer"] == peer)))


def _largest_common(rows: Rows) -> Iterator[list[str]]:
    """Of each case, the size nearest to 10,000."""
    for case, found in groupby(rows, key=lambda row: row["case"]):
        of_case = list(found)
        n = min({row["n"] for row in of_case}, key=lambda size: abs(size - 10_000))
        peers = {row["peer"]: row for row in of_case if row["n"] == n}
        others = {peer: row for peer, row in peers.items() if peer != TWIN and not peer.startswith(FLOOR)}
        best = min(others, key=lambda peer: others[peer]["ratio"], default=None)
        floor = next((row for peer, row in peers.items() if peer.startswith(FLOOR)), None)
        yield [
            case,
            f"{n:,}",
            time_text(next(iter(peers.values()))["ours_s"]),
            _factor(peers.get(TWIN)),
            "" if best is None else f"{best} {_factor(others[best])}",
            "" if floor is None else time_text(floor["peer_s"]),
        ]


def _factor(row: Mapping[str, Any] | None) -> str:
    return "" if row is None else ratio_text(row["ratio"])


def _size(value: float) -> str:
    for least, suffix in ((1e6, "M"), (1e3, "k")):
        if value >= least:
            return f"{value / least:g}{suffix}"
    return f"{value:g}"
