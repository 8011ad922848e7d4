"""`python -m bench replicas`: replicas of a router, each with its own counts, beside one with all of them."""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.table import Table

from bench.machine import this_machine
from bench.progress import announce, clear
from bench.replicas.model import Outcome, Setting, simulate
from bench.results import heading, print_page, today
from bench.rivals.tables import new_table
from bench.spread import Spread, spread_of
from coresched import __version__
from coresched.cli.parser import CommandParser, add_command, count
from coresched.cli.terminal import stdout_console

CASES = {
    "4 workers": Setting(4, 8),
    "8 workers": Setting(8, 8),
    "16 workers": Setting(16, 8),
    "8 workers, a label of 20 % of the samples": Setting(8, 8, hot=0.2),
    "8 workers, full": Setting(8, 32),
    "8 workers, sticky-bounded": Setting(8, 8, router="sticky-bounded"),
}
QUICK_CASES = ("4 workers",)
REPLICAS = (2, 4, 8)
SLACKS = (0, 1, 2, 4)
SEEDS, QUICK_SEEDS = 5, 2

NOTES = (
    "replicas 1 is one authoritative count. affinity: % of a sample's later turns",
    "served where the one before was. false: % of turns that left home within the",
    "bound of the true counts, slack 0. missed: % that stayed beyond it. max/mean:",
    "requests in flight on the most loaded worker over the mean. % longer: makespan",
    "beside the same router with one replica and slack 0 on the same seed. Medians",
    "over the seeds, and in brackets quartiles. Virtual time, real routers; batches",
    "as in bench/replicas/model.py.",
)


@dataclass(frozen=True, slots=True)
class Row:
    """A setting's outcomes, one a seed, and how much longer each took than the authoritative one, in %."""

    case: str
    setting: Setting
    outcomes: list[Outcome]
    longer: list[float]


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "replicas",
        summary="several replicas of a router with counts of their own, and slack",
        description="Simulate batches behind 1 to 8 replicas of a router, each of which counts the requests\n"
        "that it routed itself, with a front that deals requests out or one that goes by the label.",
        example="python -m bench replicas --quick",
    )
    parser.add_argument("--seeds", type=count, metavar="N", help=f"batches of each case (default {SEEDS})")
    parser.add_argument("--quick", action="store_true", help="one case, two seeds: to see that it runs")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    machine = this_machine()
    seeds = args.seeds or (QUICK_SEEDS if args.quick else SEEDS)
    rows = [row for name in (QUICK_CASES if args.quick else CASES) for row in measured(name, seeds)]
    clear()
    if args.json:
        told = {"command": args.command_line, "date": today(), "version": __version__}
        told |= {"machine": asdict(machine), "seeds": seeds, "rows": [_as_json(row) for row in rows]}
        print(json.dumps(told, indent=1))
        return 0
    print_page(stdout_console(), heading(args.command_line, machine), *_tables(rows), notes=NOTES)
    return 0


def settings_of(case: Setting) -> Iterator[Setting]:
    """One authoritative count at each slack, and each number of replicas behind each front."""
    yield from (replace(case, slack=slack) for slack in SLACKS)
    for replicas in REPLICAS:
        for slack in SLACKS:
            yield replace(case, replicas=replicas, slack=slack)
            yield replace(case, replicas=replicas, slack=slack, front="by-label")


def measured(name: str, seeds: int) -> Iterator[Row]:
    case = CASES[name]
    base = [simulate(case, seed) for seed in range(seeds)]
    for setting in settings_of(case):
        announce(f"{name}: {setting.replicas} replicas, {setting.front}, slack {setting.slack}")
        outcomes = base if setting == case else [simulate(setting, seed) for seed in range(seeds)]
        longer = [
            100 * (ours.makespan_s / one.makespan_s - 1) for ours, one in zip(outcomes, base, strict=True)
        ]
        yield Row(name, setting, outcomes, longer)


def _spread(row: Row, name: str, factor: float = 1.0) -> Spread:
    return spread_of([factor * getattr(outcome, name) for outcome in row.outcomes])


def _as_json(row: Row) -> dict[str, Any]:
    return {
        "case": row.case,
        **asdict(row.setting),
        "longer_percent": row.longer,
        "outcomes": [asdict(outcome) for outcome in row.outcomes],
    }


def _tables(rows: Sequence[Row]) -> Iterator[Table]:
    for case in dict.fromkeys(row.case for row in rows):
        mine = [row for row in rows if row.case == case]
        title = f"{case}, {_spread(mine[0], 'in_flight').median:.0f} in flight on each"
        table = new_table(title, "", "slack", "affinity", "false", "missed", "max/mean", "% longer")
        for row in mine:
            affinity, longer = _spread(row, "affinity", 100), spread_of(row.longer)
            one = row.setting.replicas == 1
            table.add_row(
                "1 replica" if one else f"{row.setting.replicas}, {row.setting.front}",
                str(row.setting.slack),
                f"{affinity.median:.0f} ({affinity.q1:.0f} to {affinity.q3:.0f})",
                f"{_spread(row, 'false_spills', 100).median:.1f}",
                f"{_spread(row, 'missed_spills', 100).median:.1f}",
                f"{_spread(row, 'peak').median:.2f}",
                f"{longer.median:+.1f} ({longer.q1:+.1f} to {longer.q3:+.1f})",
            )
        yield table
