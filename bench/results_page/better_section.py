"""What beats the paper's method, part by part."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.better.trials import HURTS
from bench.results_page.markdown import (
    command_block,
    image,
    interval_text,
    is_sure,
    listed,
    minutes,
    recorded_text,
    short,
    table,
)
from bench.results_page.plots import Mark, Row, rows_plot
from bench.results_page.rivals_section import workload_of
from bench.results_page.scales import percent_scale

METHOD, STACK, KEPT = "paper's method", "all parts", "kept parts"
BUILT = "without release"
"""What runs on engines too: they cannot be told that a trajectory has ended."""
Rows = Sequence[Mapping[str, Any]]


def plots(told: Mapping[str, Any]) -> dict[str, str]:
    rows = told["rows"]
    whole = [
        Row(
            row["case"],
            (Mark(share["median"] * 100, STACK, is_sure(share), share["low"] * 100, share["high"] * 100),),
        )
        for row in rows
        if row["variant"] == STACK and (share := row["longer"])
    ]
    parts: dict[str, list[Mark]] = {}
    for row in rows:
        if share := row["brings"]:
            mark = Mark(share["median"] * 100, workload_of(row["case"]), is_sure(share))
            parts.setdefault(row["part"], []).append(mark)
    return {
        "better": rows_plot(
            "All parts together against the paper's method",
            "makespan, %: median and 95 % interval",
            whole,
            percent_scale([value for row in whole for m in row.marks for value in (m.low or 0, m.high or 0)]),
        ),
        "better-parts": rows_plot(
            "What each part saves beside all others",
            "share of the makespan saved, %: a dot a case",
            [Row(part, tuple(marks)) for part, marks in parts.items()],
            percent_scale([mark.value for marks in parts.values() for mark in marks]),
        ),
    }


def text(told: Mapping[str, Any]) -> str:
    rows = told["rows"]
    cases = list(dict.fromkeys(row["case"] for row in rows))
    of = {(row["variant"], row["case"]): row for row in rows}
    return "\n\n".join(
        [
            "## Better than the paper's method",
            "Each part takes the place of one of the paper's. All were chosen on other seeds than those "
            "below.",
            table(["part", "what it is"], [[one["part"], one["about"]] for one in told["verdicts"]]),
            command_block(told),
            *recorded_text(told),
            image("better", "All parts together against the paper's method, by case"),
            _against_method("All parts together are", STACK, cases, of),
            _against_method("Without release, which no engine can be told today, they are", BUILT, cases, of),
            _table(cases, of),
            "### Which parts never cost anything",
            "A part is kept on its own if, beside all the others, it surely saves something in some case and "
            f"surely costs more than {HURTS:.1%} of the makespan in none.",
            image("better-parts", "What each part saves beside all others, by case"),
            "\n".join(map(_verdict, told["verdicts"])),
            "The parts lean on each other: where memory is short, longest-expected-first admission overflows "
            "it without the tier and its guard, as their rows below show. So take all of them, or what "
            "`coresched advise` finds for the workload at hand, rather than the kept ones alone.",
            "What each saves beside all others (the share of the makespan, %; bold where the sign is sure):",
            table(["part", *cases], _brings(told["verdicts"], cases, of)),
            "Each alone, against the paper's method (% longer; C_A x 1.25 is the paper's method with more "
            "labels):",
            table(["", *cases], _alone(rows, cases, of)),
        ]
    )


def _against_method(
    subject: str, variant: str, cases: Sequence[str], of: Mapping[tuple[str, str], Mapping[str, Any]]
) -> str:
    shares = {case: of[variant, case]["longer"] for case in cases if (variant, case) in of}
    sure = {case: share["median"] for case, share in shares.items() if is_sure(share)}
    shorter = sum(median < 0 for median in sure.values())
    longer = [case for case, median in sure.items() if median > 0]
    return (
        f"{subject} surely shorter than the paper's method in {shorter} of {len(shares)} cases and surely "
        f"longer in: {listed(longer)}."
    )


def _table(cases: Sequence[str], of: Mapping[tuple[str, str], Mapping[str, Any]]) -> str:
    columns = [name for name in (STACK, KEPT) if (name, cases[0]) in of]
    heads = ["case", f"{METHOD}, minutes"]
    for name in columns:
        heads += [f"{name}, minutes", "% longer"]
    rows = []
    for case in cases:
        row = [case, minutes(of[METHOD, case])]
        for name in columns:
            row += [minutes(of[name, case]), interval_text(of[name, case]["longer"])]
        rows.append(row)
    return table(heads, rows)


def _verdict(verdict: Mapping[str, Any]) -> str:
    word = "kept" if verdict["kept"] else "**not kept on its own**"
    return (
        f"- {verdict['part']}: {word}; surely saves in {len(verdict['helps'])} cases, surely costs in: "
        f"{listed(verdict['costs'])}."
    )


def _brings(
    verdicts: Rows, cases: Sequence[str], of: Mapping[tuple[str, str], Mapping[str, Any]]
) -> Iterator[list[str]]:
    for verdict in verdicts:
        part = verdict["part"]
        rows = [of.get((f"without {part}", case)) for case in cases]
        yield [part, *("" if row is None else short(row["brings"]) for row in rows)]


def _alone(
    rows: Rows, cases: Sequence[str], of: Mapping[tuple[str, str], Mapping[str, Any]]
) -> Iterator[list[str]]:
    names = dict.fromkeys(row["variant"] for row in rows)
    for name in names:
        if name.startswith(("only ", "C_A")):
            cells = [of.get((name, case)) for case in cases]
            yield [name, *("" if row is None else short(row["longer"]) for row in cells)]
