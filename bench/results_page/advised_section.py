"""What `coresched advise` advises, against the paper's method."""

from collections.abc import Mapping
from typing import Any

from bench.results_page.markdown import command_block, interval_text, percent, table


def text(told: Mapping[str, Any]) -> str:
    return "\n\n".join(
        [
            "## What `coresched advise` advises",
            "Told the paper's method as what is set today, and one batch of each kind. What it advises is "
            "judged on other batches, of recorded ones on other orders. Savings are shares of the paper's "
            "method's makespan, seed by seed, in percent: the mean with its bootstrap 95 % interval, the "
            "median with the distribution-free one, the worst seed. Noise: how far the paper's method is "
            "from itself in another submission order of the same batch, on the worst of as many seeds.",
            command_block(told),
            table(
                ["case", "paper's method, minutes", "mean", "median", "worst", "noise", "advised"],
                map(_cells, told["rows"]),
            ),
            "\n".join(map(_claim, told["claims"])),
        ]
    )


def _cells(row: Mapping[str, Any]) -> list[str]:
    saved = row["saved"]
    mean = {"median": saved["mean"], "low": saved["mean_low"], "high": saved["mean_high"]}
    return [
        row["case"],
        f"{row['method_makespan_s'] / 60:.1f}",
        interval_text(mean),
        interval_text(saved["median"]),
        percent(saved["worst"]),
        f"{row['noise'] * 100:.1f}",
        row["advised"],
    ]


def _claim(claim: Mapping[str, Any]) -> str:
    return f"- {claim['claim']}: {'yes' if claim['holds'] else '**no**'}; {claim['detail']}."
