"""The page and its plots, all of it from the summary: nothing on it is written by hand beside a number."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from bench.results_page import advised_section, better_section, cost_section, paper_section, rivals_section
from bench.results_page.markdown import is_sure, listed, wrapped
from bench.rivals.kinds import PAPER

COMMAND: Final = "python -m bench results"


def page(summary: Mapping[str, Any]) -> str:
    """The page in Markdown."""
    rivals, better = summary["rivals"], summary["better"]
    parts = [
        "# Results",
        _opening(summary),
        paper_section.text(summary["paper"]),
        rivals_section.text(rivals, better),
        better_section.text(better),
        *([advised_section.text(summary["advised"])] if "advised" in summary else []),
        cost_section.overhead_text(summary["overhead"]),
        cost_section.capacity_text(summary["capacity"]),
        _limits_of_the_page(),
    ]
    return wrapped("\n\n".join(parts)) + "\n"


def plots(summary: Mapping[str, Any]) -> dict[str, str]:
    """The SVG files of the page by name."""
    return {
        **paper_section.plots(summary["paper"]),
        **rivals_section.plots(summary["rivals"], summary["better"]),
        **better_section.plots(summary["better"]),
        **cost_section.plots(summary["overhead"], summary["capacity"]),
    }


def _opening(summary: Mapping[str, Any]) -> str:
    shapes = Counter(shape["verdict"] for shape in summary["paper"]["shapes"])
    stack = [row["longer"] for row in summary["better"]["rows"] if row["variant"] == better_section.STACK]
    won = sum(is_sure(share) and share["median"] < 0 for share in stack)
    lost = sum(is_sure(share) and share["median"] > 0 for share in stack)
    dropped = [one["part"] for one in summary["better"]["verdicts"] if not one["kept"]]
    return "\n\n".join(
        [
            f"Everything on this page is written by `{COMMAND}` from what the benches below print; each "
            "section begins with the command of its numbers. Makespans are simulated, in virtual time, so "
            "the machine does not matter to them; the costs of scheduling are measured. Comparisons are "
            "paired seed by seed: the median, and the distribution-free 95 % interval of that median.",
            "In short:",
            "\n".join(
                [
                    f"- Of the paper's {sum(shapes.values())} shapes {shapes['reproduces']} reproduce, "
                    f"{shapes['in part']} in part, {shapes['does not']} do not.",
                    *_winners(summary["rivals"]["rows"]),
                    f"- What we put in place of the paper's method is surely shorter in {won} of "
                    f"{len(stack)} cases, surely longer in {lost}. Parts of it that cost something beside "
                    f"the others in some case: {listed(dropped)}.",
                ]
            ),
        ]
    )


def _winners(rows: rivals_section.Rows) -> list[str]:
    """Of each kind, the policies that surely beat the paper's own somewhere and surely lose nowhere."""
    found = []
    for (kind, base), of_kind in rivals_section.groups(rows).items():
        if base != PAPER:
            continue
        shares: dict[str, list[Mapping[str, float]]] = {}
        for row in of_kind:
            if row["longer"] and (kind, row["policy"]) not in rivals_section.ORACLES:
                shares.setdefault(row["policy"], []).append(row["longer"])
        ahead = [
            policy
            for policy, some in shares.items()
            if any(is_sure(share) and share["median"] < 0 for share in some)
            and not any(is_sure(share) and share["median"] > 0 for share in some)
        ]
        found.append(
            f"- {kind}: surely ahead of the paper's method ({of_kind[0]['reference']}) in some case and "
            f"behind in none: {listed(ahead)}."
        )
    return found


def _limits_of_the_page() -> str:
    return (
        "## What this does not show\n\n"
        "- No run here is of a real engine: step times were fitted to published cells, so compare ratios, "
        "not minutes. What ran on real engines is in [benchmarks](benchmarks.md).\n"
        "- The batches of the paper's workloads have the published totals; their turns are drawn, "
        "independent of each other, and have no failures, retries or sub-agents.\n"
        "- Rivals are their decision rules on exact and immediate knowledge, not the programs they come "
        "from.\n- What was chosen because it won in this simulator can owe something to the simulator."
    )
