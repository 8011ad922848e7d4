"""Comparisons as tables and as JSON."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from rich.table import Table

from bench.machine import Machine
from bench.results import today
from bench.rivals.kinds import Comparison
from bench.rivals.runs import Result, Results, against
from coresched import __version__
from coresched.lab.advice.judgement import Interval


def as_json(
    command: str,
    machine: Machine,
    seeds: int,
    recorded: Sequence[dict[str, Any]],
    rows: Iterable[dict[str, Any]],
) -> dict[str, Any]:
    """What every comparison of simulated runs prints with ``--json``."""
    return {
        "command": command,
        "date": today(),
        "version": __version__,
        "machine": asdict(machine),
        "seeds": seeds,
        "recorded": list(recorded),
        "rows": list(rows),
    }


def rows_of(comparison: Comparison, results: Results) -> list[dict[str, Any]]:
    """A row for each policy. ``longer`` is None for the reference, else the interval of `against`."""
    return [
        {
            "kind": comparison.kind,
            "base": comparison.base,
            "case": comparison.case.name,
            "policy": policy,
            "reference": comparison.reference,
            **summary(runs := results[comparison.case, settings]),
            "longer": None
            if policy == comparison.reference
            else asdict(_longer(comparison, policy, results)),
            "makespans_s": [run.makespan_s for run in runs],
        }
        for policy, settings in comparison.settings.items()
    ]


def summary(runs: Sequence[Result]) -> dict[str, float | None]:
    """Medians over the seeds."""
    uneven = [run.request_imbalance for run in runs if run.request_imbalance is not None]
    return {
        "makespan_s": median(run.makespan_s for run in runs),
        "of_bound": median(run.of_bound for run in runs),
        "cache_reuse": median(run.cache_reuse for run in runs),
        "request_imbalance": median(uneven) if uneven else None,
        "migrations": median(run.migrations for run in runs),
    }


def table(comparison: Comparison, results: Results) -> Table:
    """The policies of one kind on one case, the shortest makespan first."""
    shown = new_table(
        title(comparison),
        comparison.kind,
        "min",
        "% longer",
        "reuse",
        "imb.",
        "moved",
        "x bound",
    )
    for row in sorted(rows_of(comparison, results), key=_place):
        longer = row["longer"]
        shown.add_row(row["policy"], *_cells(row), style="" if longer else "bold")
    return shown


def new_table(title: str, *heads: str) -> Table:
    """The first column is text, the others are numbers."""
    made = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 1),
        collapse_padding=True,
        pad_edge=False,
        header_style="bold",
    )
    for number, head in enumerate(heads):
        made.add_column(head, justify="right" if number else "left", no_wrap=True)
    return made


def title(comparison: Comparison) -> str:
    """Kind, case and what the rest is."""
    return f"{comparison.kind}: {comparison.case.name}, {comparison.base}"


def verdict(comparison: Comparison, results: Results) -> str:
    """Which policies are surely better or worse than the reference."""
    found = {
        policy: _longer(comparison, policy, results)
        for policy in comparison.settings
        if policy != comparison.reference
    }
    better = [policy for policy, share in found.items() if share.high < 0]
    worse = [policy for policy, share in found.items() if share.low > 0]
    return (
        f"{title(comparison)}: surely shorter than with "
        f"{comparison.reference}: {', '.join(better) or 'none'}; surely longer: {', '.join(worse) or 'none'}."
    )


def percents(share: Interval) -> str:
    """A share and its interval in percent."""
    return f"{share.median * 100:+.1f} ({share.low * 100:+.1f} to {share.high * 100:+.1f})"


def _longer(comparison: Comparison, policy: str, results: Results) -> Interval:
    case, settings = comparison.case, comparison.settings
    return against(results[case, settings[policy]], results[case, settings[comparison.reference]])


def _place(row: dict[str, Any]) -> float:
    return row["longer"]["median"] if row["longer"] else 0.0


def _cells(row: dict[str, Any]) -> list[str]:
    imbalance = row["request_imbalance"]
    return [
        f"{row['makespan_s'] / 60:.1f}",
        percents(Interval(**row["longer"])) if row["longer"] else "",
        f"{row['cache_reuse'] * 100:.1f}",
        "" if imbalance is None else f"{imbalance * 100:.1f}",
        f"{row['migrations']:.0f}",
        f"{row['of_bound']:.2f}",
    ]
