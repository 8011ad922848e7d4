"""One frame: a snapshot as it stands in the terminal, from about 60 columns on, in ASCII if need be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from coresched.top.bar import Bar, Part
from coresched.top.flow import Flow
from coresched.top.snapshot import Snapshot
from coresched.v1 import batches_pb2 as pb
from coresched.v1 import router_pb2

TURNS = ("0", "1", "2-3", "4-7", "8-15", "16-31", "32-63", "64+")
"""The groups of BatchProgress.admitted_by_turns."""

_STATES = {
    router_pb2.WORKER_STATE_ROUTABLE: ("routable", "green"),
    router_pb2.WORKER_STATE_DRAINING: ("draining", "yellow"),
    router_pb2.WORKER_STATE_REMOVED: ("removed", "red"),
}


class Frame:
    """The whole view; where the height is limited, as many batches and workers as fit.

    `state` says in words what keeps the snapshot from being the present one, if anything does.
    """

    def __init__(self, target: str, snapshot: Snapshot | None, state: str = "") -> None:
        self._target = target
        self._snapshot = snapshot
        self._state = state

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        plain = options.ascii_only
        yield _header(self._target, self._snapshot, self._state, plain)
        if self._snapshot is None:
            return
        batches, workers = self._snapshot.batches, self._snapshot.workers.workers
        shown, rows = len(batches), len(workers)
        if options.height is not None:
            heights = [0]  # of the first batches together
            for batch in batches:
                block = Group(*_batch(batch, plain))
                heights.append(heights[-1] + len(console.render_lines(block, options.update(height=None))))
                if heights[-1] > options.height:
                    break
            shown, rows = _room(options.height, heights, len(batches), len(workers))
        for batch in batches[:shown]:
            yield from _batch(batch, plain)
        if not batches:
            yield Text("no open batch", style="dim")
        elif shown < len(batches):
            yield Text(f"... and {_number(len(batches) - shown, 'more batch', 'more batches')}", style="dim")
        yield _rule(plain)
        yield from _workers(self._snapshot, workers[:rows], plain)


def _room(height: int, heights: Sequence[int], batches: int, workers: int) -> tuple[int, int]:
    """How many batches and workers to show; a line says how many of either there is no room for."""
    lines = height - 1 - (3 if workers else 2)  # without the header, and what stands above the workers
    least = min(workers, 3) + (workers > 3)
    shown = 0
    while shown + 1 < len(heights) and heights[shown + 1] + (shown + 1 < batches) + least <= lines:
        shown += 1
    lines -= heights[shown] + (shown < batches or batches == 0)
    return shown, workers if workers <= lines else max(lines - 1, 0)


def _header(target: str, snapshot: Snapshot | None, state: str, plain: bool) -> Table:
    header = Table.grid(expand=True, padding=(0, 1))
    header.add_column(ratio=1, no_wrap=True, overflow=_cut(plain))
    header.add_column(justify="right", no_wrap=True)
    title = Text.assemble(("coresched top", "bold"), f"  {target}")
    if snapshot is not None:
        still = sum(not batch.closed for batch in snapshot.batches)
        title.append(f"  {_number(still, 'open batch', 'open batches')}")
        title.append(f"  {_number(len(snapshot.workers.workers), 'worker', 'workers')}")
    header.add_row(title, Text(state, style="bold red"))
    return header


def _batch(batch: pb.BatchProgress, plain: bool) -> Iterator[RenderableType]:
    options = batch.options
    yield _rule(plain)
    title = Table.grid(expand=True, padding=(0, 1))
    title.add_column(ratio=1, no_wrap=True, overflow=_cut(plain))
    title.add_column(justify="right", no_wrap=True)
    ended = batch.finished + batch.withdrawn
    share = f"{ended / batch.samples:.0%}" if batch.samples else "0%"
    makespan = f"makespan {_time(batch.makespan_s)}  " if batch.HasField("makespan_s") else ""
    closed = "closed  " if batch.closed else ""
    so_far = f"{closed}{ended:,}/{batch.samples:,} ended, {share}  {makespan}elapsed {_time(batch.elapsed_s)}"
    title.add_row(Text(printable_name(batch.batch, plain), style="bold"), Text(so_far))
    yield title
    parts = _parts(batch, plain)
    yield Bar(parts)
    yield Flow([_legend(part) for part in parts if part.value])
    slots = f"/{options.environment_concurrency}" if options.HasField("environment_concurrency") else ""
    facts = [
        f"sample slots {batch.admitted:,}/{options.sample_concurrency:,}",
        f"environments {batch.environment_running:,}{slots}",
        f"queued {batch.environment_queued:,}",
    ]
    if options.admission_policy == pb.ADMISSION_POLICY_LONGEST_EXPECTED_FIRST:
        facts.insert(1, "longest expected first")
    if batch.HasField("oldest_environment_wait_s"):
        facts.append(f"oldest wait {_time(batch.oldest_environment_wait_s)}")
    if options.HasField("resident_concurrency") or batch.resident or batch.resident_queued:
        of = f"/{options.resident_concurrency:,}" if options.HasField("resident_concurrency") else ""
        facts += [f"residents {batch.resident:,}{of}", f"resident queue {batch.resident_queued:,}"]
    facts += [f"turns {batch.turns:,}", _number(batch.sessions, "session", "sessions")]
    if batch.HasField("abandoned_s"):
        facts.append(f"abandoned for {_time(batch.abandoned_s)}")
    if batch.readmissions:
        facts.append(f"readmitted {batch.readmissions:,}")
    yield Flow(facts)
    yield _depths(batch.admitted_by_turns, plain)


def _legend(part: Part) -> Text:
    counted = f"{part.value:,} {part.name}"
    return Text.assemble((part.sign, part.style), f" {counted}") if part.sign.strip() else Text(counted)


def _parts(batch: pb.BatchProgress, plain: bool) -> list[Part]:
    between = batch.admitted - batch.inference - batch.environment_queued - batch.environment_running
    between -= batch.resident_queued
    counts = (
        ("finished", batch.finished, "green"),
        ("withdrawn", batch.withdrawn, "red"),
        ("environment", batch.environment_running, "magenta"),
        ("queued", batch.environment_queued, "yellow"),
        ("inference", batch.inference, "cyan"),
        ("between", between, "white"),
        ("resident queue", batch.resident_queued, "blue"),
        ("waiting", batch.waiting, "dim"),
        ("open", batch.open, "dim"),
    )
    signs = "#x=-+~:. " if plain else "█x▓▒▚░┊· "
    return [Part(name, value, sign, style) for (name, value, style), sign in zip(counts, signs, strict=True)]


def _depths(counts: Sequence[int], plain: bool) -> Flow:
    """Admitted samples by completed turns, each with a column of eighths of the most."""
    pieces = [Text("chains by turns")]
    most = max([*counts, 1])
    for name, count in zip(TURNS, counts, strict=False):
        column = " ▁▂▃▄▅▆▇█"[-(-count * 8 // most)] if count and not plain else ""
        number = f"{count:,}" if count else "-"
        pieces.append(Text.assemble((f"{name} ", "dim"), (column, "cyan"), (number, "bold")))
    return Flow(pieces)


def _workers(
    snapshot: Snapshot, workers: Sequence[router_pb2.Worker], plain: bool
) -> Iterator[RenderableType]:
    answer = snapshot.workers
    if not answer.workers:
        yield Text("no worker", style="dim")
        return
    beta = "-" if snapshot.beta is None else f"{snapshot.beta:.3f}"
    now = f"{answer.imbalance:.3f}" if answer.HasField("imbalance") else "-"
    bound = f"{answer.router}, load bound {answer.load_bound:g}"
    if answer.slack:
        bound += f", slack {answer.slack}"
    yield Flow([f"request imbalance beta {beta}, now {now}", bound])
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    table.add_column("worker", no_wrap=True, overflow=_cut(plain), min_width=6, max_width=32)
    table.add_column("state", no_wrap=True)
    table.add_column("in flight", justify="right", no_wrap=True)
    table.add_column("", ratio=1)
    table.add_column("routed", justify="right", no_wrap=True)
    table.add_column("spilled", justify="right", no_wrap=True)
    most = max(worker.in_flight for worker in answer.workers)
    for worker in workers:
        word, style = _STATES.get(worker.state, ("unknown", "red"))
        load = Part("", worker.in_flight, "#" if plain else "█", "cyan")
        table.add_row(
            Text(printable_name(worker.worker, plain)),
            Text(word, style=style),
            f"{worker.in_flight:,}",
            Bar([load, Part("", most - worker.in_flight, " ", "")]),
            f"{worker.routed:,}",
            f"{worker.spilled:,}",
        )
    yield table
    if len(workers) < len(answer.workers):
        left_out = _number(len(answer.workers) - len(workers), "more worker", "more workers")
        yield Text(f"... and {left_out}", style="dim")


def _rule(plain: bool) -> Rule:
    return Rule(style="dim", characters="-" if plain else "─")


def _cut(plain: bool) -> Literal["crop", "ellipsis"]:
    return "crop" if plain else "ellipsis"


def _number(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"


def _time(seconds: float) -> str:
    """Seconds as people read them: 4.2 s, 3:05, 1:02:03."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def printable_name(name: str, plain: bool) -> str:
    """A name that cannot move the cursor or colour the rest."""
    name = "".join(character if character.isprintable() else "?" for character in name)
    return name.encode("ascii", "replace").decode() if plain else name
