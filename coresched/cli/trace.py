"""`coresched trace`: what trace files contain, and traces from recordings and from a generator."""

import argparse
import dataclasses
import json
import os
import textwrap
from collections.abc import Callable
from itertools import pairwise

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from coresched.cli import trace_history, trace_import
from coresched.cli.parser import CommandParser, count, integer
from coresched.cli.terminal import bar, stdout_console
from coresched.trajectory.generator import PROFILES, generate
from coresched.trajectory.histogram import Histogram
from coresched.trajectory.profile import Distribution, TraceProfile, profile
from coresched.trajectory.reader import read_files
from coresched.trajectory.writer import write_trajectories

Subparsers = argparse._SubParsersAction  # argparse has no public name for what add_subparsers returns

_SIDE_BY_SIDE_COLUMNS = 110


def add_parser(commands: "Subparsers[CommandParser]") -> None:
    """Adds `trace` and its subcommands."""
    parser = commands.add_parser(
        "trace",
        help="look at trace files, import recordings, generate traces",
        description="Look at trace files (.jsonl, .jsonl.gz, .jsonl.zst), import recordings of other tools, "
        "generate traces.",
    )
    subcommands = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)
    for add in (_add_show, _add_import, _add_history, _add_generate):
        add(subcommands)


def _add_subcommand(
    subcommands: "Subparsers[CommandParser]",
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
    description: str,
) -> CommandParser:
    parser = subcommands.add_parser(
        name,
        help=summary,
        description=textwrap.dedent(description).strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def _add_show(subcommands: "Subparsers[CommandParser]") -> None:
    parser = _add_subcommand(
        subcommands,
        "show",
        _show,
        "counts, percentiles and histograms of trace files",
        """
        Print counts, percentiles and histograms of one or more trace files.

        example:
          coresched trace show traces.jsonl.zst
          coresched trace show monday.jsonl tuesday.jsonl --json
        """,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help=".jsonl, .jsonl.gz or .jsonl.zst")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")


def _add_import(subcommands: "Subparsers[CommandParser]") -> None:
    summary = "write recordings of agent harnesses and serving systems as a trace"
    _add_subcommand(subcommands, "import", trace_import.run, summary, "").filled_by(trace_import.fill)


def _add_history(subcommands: "Subparsers[CommandParser]") -> None:
    summary = "how long each task took, for admission by history"
    _add_subcommand(subcommands, "history", trace_history.run, summary, "").filled_by(trace_history.fill)


def _add_generate(subcommands: "Subparsers[CommandParser]") -> None:
    fitted = "\n".join(
        textwrap.fill(f"{name:<11}{workload.fitted_to}", 78, initial_indent="  ", subsequent_indent=" " * 13)
        for name, workload in PROFILES.items()
    )
    parser = _add_subcommand(
        subcommands,
        "generate",
        _generate,
        "write a trace drawn from fitted distributions",
        f"Write a trace drawn from the distributions of a profile, which are fitted to:\n\n{fitted}\n\n"
        "example:\n  coresched trace generate swe --count 240 --seed 7 --output swe.jsonl.gz",
    )
    parser.add_argument("profile", metavar="PROFILE", help=", ".join(PROFILES))
    parser.add_argument("--count", type=count, default=100, metavar="N", help="trajectories (default 100)")
    parser.add_argument(
        "--seed", type=integer, default=0, metavar="S", help="same seed, same trace (default 0)"
    )
    parser.add_argument("--output", required=True, metavar="OUT", help=".jsonl, .jsonl.gz or .jsonl.zst")


def _show(args: argparse.Namespace) -> int:
    found = profile(read_files(args.files))
    if args.json:
        print(json.dumps({"files": args.files, **dataclasses.asdict(found)}, indent=2), flush=True)
    else:
        _print_profile(stdout_console(), args.files, found)
    return 0


def _generate(args: argparse.Namespace) -> int:
    count = write_trajectories(args.output, generate(args.profile, args.count, args.seed))
    size_kb = os.path.getsize(args.output) / 1000
    stdout_console().print(f"{args.output}: {count:,} trajectories, {size_kb:,.1f} kB", soft_wrap=True)
    return 0


def _print_profile(console: Console, files: list[str], found: TraceProfile) -> None:
    console.print(Text(", ".join(files), style="bold"))
    console.print(_facts(found))
    console.print()
    console.print(_percentiles(found))
    console.print()
    side_by_side = console.width >= _SIDE_BY_SIDE_COLUMNS
    width = min(console.width, 140)
    charts = [("Turns per trajectory", found.turns_histogram, _whole)]
    if found.environment_histogram is not None:
        charts.append(("Environment durations, s (log scale)", found.environment_histogram, _seconds))
    drawn = [
        _chart(console, title, histogram, label, width // 2 - 2 if side_by_side else width)
        for title, histogram, label in charts
    ]
    if side_by_side:
        grid = Table.grid(padding=(0, 4, 0, 0))
        grid.add_row(*drawn)
        console.print(grid)
    else:
        for chart in drawn:
            console.print(chart)
            console.print()


def _facts(found: TraceProfile) -> Table:
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="cyan", no_wrap=True)
    facts.add_column()
    facts.add_row("Trajectories", _whole(found.trajectories))
    facts.add_row("Turns", _whole(found.turns))
    stages = _whole(found.environment_stages)
    qualities = ", ".join(f"{_whole(n)} {quality}" for quality, n in found.duration_quality.items() if n)
    facts.add_row("Environment stages", f"{stages} (durations: {qualities})" if qualities else stages)
    if found.environment_share is not None:
        share = f"{found.environment_share:.1%} of environment and inference seconds"
        facts.add_row("Environment share", share)
    facts.add_row("Input tokens", _whole(found.prompt_tokens.total))
    facts.add_row(
        "New at the least",
        f"{_whole(found.minimum_new_prefill_tokens)}: a perfect cache serves {found.perfect_cache_reuse:.1%}",
    )
    return facts


def _percentiles(found: TraceProfile) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("", style="cyan", no_wrap=True)
    for name in ("mean", "p50", "p90", "p99", "max"):
        table.add_column(name, justify="right", min_width=7)
    rows: list[tuple[str, Distribution | None, Callable[[float], str]]] = [
        ("Turns per trajectory", found.turns_per_trajectory, _whole),
        ("Initial prompt, tokens", found.initial_prompt_tokens, _whole),
        ("Final context, tokens", found.final_context_tokens, _whole),
        ("Prompt per request, tokens", found.prompt_tokens, _whole),
        ("Output per turn, tokens", found.output_tokens, _whole),
        ("Response, tokens", found.response_tokens, _whole),
        ("Environment stage, s", found.environment_s, _seconds),
        ("Inference, s", found.inference_s, _seconds),
    ]
    for name, row, form in rows:
        if row is None:
            table.add_row(name, Text("absent", style="dim"))
        else:
            mean = f"{row.mean:.1f}" if form is _whole and row.mean < 1000 else form(row.mean)
            table.add_row(name, mean, *(form(value) for value in (row.p50, row.p90, row.p99, row.max)))
    return table


def _chart(
    console: Console, title: str, histogram: Histogram, form: Callable[[float], str], width: int
) -> Table:
    edges, counts = histogram.edges, histogram.counts
    whole = form is _whole
    labels = [_bin_label(low, high, whole) for low, high in pairwise(edges)]
    numbers = [_whole(count) for count in counts]
    bar_width = max(width - max(map(len, labels)) - max(map(len, numbers)) - 4, 4)
    chart = Table.grid(padding=(0, 2, 0, 0))
    chart.title, chart.title_justify, chart.title_style = title, "left", "bold"
    chart.add_column(justify="right", no_wrap=True)
    chart.add_column(width=bar_width, style="green", no_wrap=True)
    chart.add_column(justify="right", no_wrap=True)
    for label, share, number in zip(labels, counts, numbers, strict=True):
        chart.add_row(label, bar(console, share / max(counts), bar_width), number)
    return chart


def _bin_label(low: float, high: float, whole: bool) -> str:
    if not whole:
        return f"{low:g} - {high:g}"
    return _whole(low) if high - low == 1 else f"{_whole(low)} - {_whole(high - 1)}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _seconds(value: float) -> str:
    """Three digits where they mean something, milliseconds at the finest, and never an exponent."""
    return f"{value:,.{3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0}f}"
