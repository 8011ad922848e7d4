"""The results of `python -m bench coalescing` as tables."""

from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any

from rich.table import Table

from bench.coalescing.setups import AS_IT_IS, FIXED_COSTS_S
from bench.coalescing.simulated import Pairs
from bench.machine import Machine
from bench.measuring import Measured
from bench.results import heading, print_page
from coresched.cli.terminal import stdout_console
from coresched.lab.advice.judgement import interval

NOTES = (
    "p0: fixed cost of a prefill batch. Simulated: how much longer in percent, with",
    "up to 8 returning turns held for up to 1 s; median and 95 % interval of the",
    "seeds. rp: routing-prefix. SGLang: virtual time of its own scheduler on the",
    "simulated device. vLLM: a tiny model computed on the CPU, by its CPU time.",
)

Rows = Sequence[Mapping[str, Any]]


def print_report(command: str, machine: Machine, pairs: Pairs, engines: Mapping[str, Measured]) -> None:
    tables = [simulated_table(pairs)] if pairs else []
    if (found := engines.get("SGLang")) is not None:
        tables += [sglang_table(found.rows), cpu_table(found.rows)]
    if (found := engines.get("vLLM")) is not None:
        tables += [
            step_table([row for row in found.rows if row["kind"] == "step"]),
            batch_table([row for row in found.rows if row["kind"] == "batch"]),
        ]
    versions = [
        ", ".join(f"{name} {value}" for name, value in found.engine.items()) for found in engines.values()
    ]
    print_page(stdout_console(), [*heading(command, machine), *versions], *tables, notes=NOTES)


def simulated_table(pairs: Pairs) -> Table:
    table = _table("simulated", *(f"p0 {fixed_s * 1e3:.0f} ms" for fixed_s in FIXED_COSTS_S))
    for case in dict.fromkeys(case for case, _ in pairs):
        changes = [interval([pair.change for pair in pairs[case, fixed_s]]) for fixed_s in FIXED_COSTS_S]
        table.add_row(
            case.name,
            *(f"{each.median * 100:+.1f} {each.low * 100:+.1f}..{each.high * 100:+.1f}" for each in changes),
        )
    return table


def sglang_table(rows: Rows) -> Table:
    """Means over the batches; the change is that of each batch, against the same without."""
    table = _table("SGLang", "p0", "makespan", "change", "first token", "prefills", "turns in one")
    for fixed_s, variant in dict.fromkeys((row["prefill_batch_s"], row["variant"]) for row in rows):
        plain = _chosen(rows, fixed_s, AS_IT_IS)
        mine = _chosen(rows, fixed_s, variant)
        changes = [a["makespan_s"] / b["makespan_s"] - 1 for a, b in zip(mine, plain, strict=True)]
        batches = [count for row in mine for count in row["prefilled"]]
        table.add_row(
            variant,
            f"{fixed_s * 1e3:.0f} ms",
            f"{mean(row['makespan_s'] for row in mine):.1f} s",
            "" if variant == AS_IT_IS else f"{mean(changes) * 100:+.1f} %",
            f"{mean(row['ttft_s'] for row in mine):.2f} s",
            f"{len(batches) / len(mine):.0f}",
            f"{mean(batches):.1f}",
        )
    return table


def cpu_table(rows: Rows) -> Table:
    """What SGLang's scheduler computes before a forward, by the kind of that forward."""
    samples: dict[str, list[float]] = {}
    for row in rows:
        for kind, seconds in row["cpu_s"].items():
            samples.setdefault(kind, []).extend(seconds)
    table = _table("SGLang's CPU before a forward", "median", "forwards")
    for kind, seconds in samples.items():
        table.add_row(kind, f"{median(seconds) * 1e3:.2f} ms", f"{len(seconds)}")
    return table


def step_table(rows: Rows) -> Table:
    """A turn's share is what it adds to the step of those that decode."""
    table = _table("vLLM, one step", "turns prefilled", "median", "a turn's share")
    for row in rows:
        alone = [each for each in rows if each["decoding"] == row["decoding"] and not each["turns"]]
        took = median(row["samples_s"])
        before = median(alone[0]["samples_s"]) if alone else 0.0
        table.add_row(
            f"{row['decoding']} decoding",
            f"{row['turns']}",
            f"{took * 1e3:.1f} ms",
            f"{(took - before) / row['turns'] * 1e3:.2f} ms" if row["turns"] else "",
        )
    return table


def batch_table(rows: Rows) -> Table:
    heads = ("makespan", "change", "first token", "decodes", "each", "mixed", "each")
    table = _table("vLLM, a batch", *heads)
    plain = {row["seed"]: row for row in rows if row["held"] == 1}
    for held in sorted({row["held"] for row in rows}):
        mine = [row for row in rows if row["held"] == held]
        changes = [row["makespan_s"] / plain[row["seed"]]["makespan_s"] - 1 for row in mine]
        table.add_row(
            "none held" if held == 1 else f"{held} held",
            f"{median(row['makespan_s'] for row in mine):.2f} s",
            "" if held == 1 else f"{median(changes) * 100:+.1f} %",
            f"{median(row['ttft_s'] for row in mine):.2f} s",
            *_steps([row["decode_step_s"] for row in mine]),
            *_steps([row["prompt_step_s"] for row in mine]),
        )
    return table


def _steps(durations_s: Sequence[Sequence[float]]) -> tuple[str, str]:
    """How many in a batch, and what one takes."""
    every = [seconds for batch in durations_s for seconds in batch]
    return f"{len(every) / len(durations_s):.0f}", f"{median(every) * 1e3:.1f} ms" if every else ""


def _chosen(rows: Rows, fixed_s: float, variant: str) -> Rows:
    return [row for row in rows if (row["prefill_batch_s"], row["variant"]) == (fixed_s, variant)]


def _table(name: str, *heads: str) -> Table:
    table = Table(box=None, padding=(0, 1), collapse_padding=True, pad_edge=False, header_style="bold")
    table.add_column(name, no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    return table
