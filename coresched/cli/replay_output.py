"""What `coresched replay` shows: how far it is, and what came of it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from coresched.cli.terminal import stdout_console
from coresched.lab.replay.conduct import Conducted
from coresched.lab.replay.plan import Plan
from coresched.lab.replay.record import Place, Run
from coresched.lab.replay.series import Series, run_name
from coresched.lab.replay.spread import Repeated
from coresched.lab.replay.spread_table import spread_heads, spread_rows, spread_unit, verdicts
from coresched.lab.replay.summary import ReplayMetrics
from coresched.lab.replay.table import COLUMNS, table_rows, unit_of
from coresched.lab.units import TimeUnit, percent_text

BUSY = 0.5
"""Share of a core from which on the replay's own CPU time may be in what it measures."""
TABLE_WIDTH = 78


@contextmanager
def progress_bar(
    plan: Plan, name: str = "", *, runs: int = 1, done: int = 0
) -> Iterator[Callable[[int, int], None]]:
    """A bar of turns with the time that is left, behind ``name``, where stderr is a terminal.

    Of several ``runs`` it shows all, ``done`` of which are over.
    """
    console = Console(stderr=True)
    with Progress(
        TextColumn(f"{name} {{task.completed:,.0f}}/{{task.total:,.0f}} turns".lstrip()),
        BarColumn(),
        TextColumn("{task.fields[samples]:,}/{task.fields[all_samples]:,} samples"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        before = done * plan.turns
        task = bar.add_task(
            "", total=runs * plan.turns, completed=before, samples=0, all_samples=len(plan.samples)
        )
        yield lambda turns, samples: bar.update(task, completed=before + turns, samples=samples)


def print_run(conducted: Conducted, plan: Plan, folder: Path, earlier: Run | None) -> None:
    """The table, a line on what it cost to measure, and what a reader has to know of it."""
    console, metrics = stdout_console(), conducted.metrics
    console.print(
        f"coresched replay: {metrics.completed_samples:,} of {len(plan.samples):,} samples, "
        f"{metrics.turns:,} of {plan.turns:,} turns"
    )
    console.print()
    runs = [] if earlier is None else [(earlier.name, earlier.metrics)]
    runs.append((folder.name, metrics))
    console.print(runs_table(runs), width=max(TABLE_WIDTH, console.width), crop=False)
    console.print()
    client = conducted.client
    if metrics.turns:
        console.print(
            f"The replay itself: {client.cpu_s / metrics.turns * 1000:.1f} ms of CPU a turn, "
            f"{client.cpu_s / client.wall_s:.0%} of a core; pauses "
            f"{metrics.median_environment_late_s * 1000:.1f} ms too long in the median, 99 % of them at most "
            f"{metrics.p99_environment_late_s * 1000:.1f} ms."
        )
    for note in notes(conducted, plan):
        console.print(f"note: {note}")
    console.print(f"run: {folder}")


def told_run(name: str, conducted: Conducted) -> str:
    """One run of several in a line."""
    metrics = conducted.metrics
    if metrics.makespan_s is None:
        return f"{name}: {conducted.ending.status}, {metrics.completed_samples:,} samples completed"
    unit = TimeUnit(metrics.makespan_s)
    reuse = "" if metrics.cache_reuse is None else f", cache reuse {percent_text(metrics.cache_reuse)}"
    failed = f", {metrics.failed_requests:,} requests failed" if metrics.failed_requests else ""
    return f"{name}: {unit.text(metrics.makespan_s)} {unit.name}{reuse}{failed}"


def print_series(
    groups: Sequence[Repeated],
    done: Sequence[tuple[Place, Conducted]],
    plan: Plan,
    folder: Path,
    series: Series,
) -> None:
    """Medians and spread of each configuration, and what a reader has to know of the runs."""
    console = stdout_console()
    console.print()
    print_spread(console, groups)
    if (unit := spread_unit(groups)) is not None:
        console.print("\n" + "\n".join(verdicts(groups, unit)))
    told: dict[str, list[str]] = {}
    for place, conducted in done:
        for note in notes(conducted, plan):
            told.setdefault(note, []).append(run_name(place))
    for note, runs in told.items():
        console.print(f"note: {', '.join(runs)}: {note}")
    if not series.flush_cache:
        console.print(
            "note: without --flush-cache each run has token ids of its own, so that none finds the prompts "
            "of another in the cache; what earlier runs left there still takes room until it is evicted"
        )
    console.print(f"runs: {folder}")


def print_spread(console: Console, groups: Sequence[Repeated]) -> None:
    """The table of medians, if a run has come to its end."""
    unit = spread_unit(groups)
    if unit is None:
        return
    heads = spread_heads(groups)
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    for head in heads:
        table.add_column(
            head, justify="right" if head else "left", no_wrap=bool(head) and not head.startswith("over")
        )
    for row in spread_rows(groups, unit):
        table.add_row(*row[: len(heads)])
    console.print(table, width=max(TABLE_WIDTH, console.width), crop=False)


def runs_table(runs: Sequence[tuple[str, ReplayMetrics]]) -> Table:
    """Names and metrics, the first run being the reference."""
    unit = unit_of(runs)
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    shown = [place for place, name in enumerate(COLUMNS) if name != "gain" or len(runs) > 1]
    for place in shown:
        name = COLUMNS[place]
        # A break between the words keeps the table within 80 columns.
        head = f"{name}\n({unit.name})" if name in ("makespan", "L5") else name.replace(" ", "\n")
        table.add_column(head, justify="left" if name == "run" else "right", no_wrap=True)
    for row in table_rows(runs, unit):
        table.add_row(*(row[place] for place in shown))
    return table


def notes(conducted: Conducted, plan: Plan) -> Iterator[str]:
    """What makes the numbers other than they seem, one sentence each."""
    metrics, client = conducted.metrics, conducted.client
    if conducted.ending.status != "completed":
        yield "the replay did not reach its end, so there is no makespan and no tail"
    if metrics.failed_requests:
        yield (
            f"{metrics.failed_requests} requests failed and were sent again; events.jsonl says where and why "
            "(failed-inference)"
        )
    if metrics.turns and metrics.cache_reuse is None:
        yield (
            "the endpoints do not report cached tokens; for that SGLang's OpenAI endpoints need "
            "--enable-cache-report, vLLM --enable-prompt-tokens-details"
        )
    shared = sum(sample.trajectory.shared_prefix_tokens for sample in plan.samples)
    if metrics.first_turn_cached_tokens and metrics.first_turn_cached_tokens > shared:
        yield (
            f"{metrics.first_turn_cached_tokens:,} tokens of first prompts were in the cache, left by an "
            "earlier run: restart the endpoints, or add --flush-cache"
        )
    if client.cpu_s > BUSY * client.wall_s:
        yield "the replay was short of CPU, so some of the time is its own; lower --speed, or free a core"
