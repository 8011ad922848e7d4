"""The published experiments beside the simulated ones."""

from collections import Counter
from collections.abc import Mapping
from math import exp, log
from typing import Any, Final

from bench.results_page.markdown import command_block, details, image, table
from bench.results_page.plots import Point, diagonal_plot
from bench.results_page.scales import log_scale

LIVE: Final = (
    "live runs include set-up, judging and tool times that are not published; at the published C_A, RP keeps "
    "labels of trajectories that have ended in place of live ones"
)
REASONS: Final = {
    "CAAS against FCFS": "no order of environment jobs saves what a limit of so few slots costs anyway; the "
    "published figures are of one batch, and differences of their size come and go with the seed",
    "LBCH against consistent-hash": "seeds swing by as much as the published difference",
    "best cell": "it lies on the edge of the cliff; some seeds fall off it where the published batch did not",
    "highest C_S before the cliff": "the cliff is a step away at some ratios",
    "ordering time": "the simulated LPM gives up beyond 128 waiting in more passes than the published one",
    "runs, best first": LIVE,
    "coordinated against": LIVE,
    "RP against FCFS": "how hard FCFS thrashes depends on how sharp the edges of both pools are",
    "LBCH against cache-aware": "how uneven cache-aware routing gets depends on how much text prompts share, "
    "which is not published",
}
"""Why a claim may not reproduce, by how it begins."""


def plots(told: Mapping[str, Any]) -> dict[str, str]:
    """All cells that ended in both."""
    points = [
        Point(cell["published_min"], cell["simulated_min"], cell["experiment"])
        for cell in told["cells"]
        if cell["published_min"] is not None and cell["simulated_min"] is not None
    ]
    scale = log_scale([value for point in points for value in (point.x, point.y)])
    title = "Makespans of the published experiments (minutes)"
    return {"paper": diagonal_plot(title, "published", "simulated, median of seeds", points, scale)}


def text(told: Mapping[str, Any]) -> str:
    shapes = told["shapes"]
    counted = Counter(shape["verdict"] for shape in shapes)
    rows = [
        [shape[name] for name in ("experiment", "workload", "claim", "published", "simulated", "verdict")]
        for shape in shapes
    ]
    missed = [shape for shape in shapes if shape["verdict"] != "reproduces"]
    return "\n\n".join(
        [
            "## The paper again",
            "The experiments of arXiv:2611.16661 in the simulator, all with one calibrated worker model. "
            "Each seed is another batch with the published totals.",
            command_block(told),
            image("paper", "Published and simulated makespans of every cell on a diagonal"),
            f"Of {len(shapes)} shapes {counted['reproduces']} reproduce, {counted['in part']} in part, "
            f"{counted['does not']} do not. " + _agreement(told),
            "What does not, or only in part:",
            table(["shape", "paper", "simulated", "why, as far as we know"], map(_missed, missed)),
            details(
                "Every shape",
                table(["", "workload", "shape", "paper", "simulated", "verdict"], rows),
            ),
        ]
    )


def _missed(shape: Mapping[str, str]) -> list[str]:
    why = next((reason for begin, reason in REASONS.items() if shape["claim"].startswith(begin)), "")
    name = f"{shape['experiment']}, {shape['workload']}: {shape['claim']}"
    return [name, shape["published"], shape["simulated"], why]


def _agreement(told: Mapping[str, Any]) -> str:
    """How far makespans are off, by experiment."""
    found: dict[str, list[float]] = {}
    for cell in told["cells"]:
        if cell["published_min"] is not None and cell["simulated_min"] is not None:
            found.setdefault(cell["experiment"], []).append(
                log(cell["simulated_min"] / cell["published_min"])
            )
    off = ", ".join(
        f"{name} {exp((sum(one * one for one in logs) / len(logs)) ** 0.5) - 1:.0%}"
        for name, logs in found.items()
    )
    ends = sum(cell["published_stopped"] == (cell["simulated_min"] is None) for cell in told["cells"])
    return (
        f"Whether a run ends within the published limit agrees in {ends} of {len(told['cells'])} cells. "
        f"Where both end, makespans are off by (root mean square of logarithms): {off}."
    )
