"""`coresched trace history`: how long each task took, for admission by history."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from coresched.cli.parser import CommandParser
from coresched.cli.terminal import stdout_console
from coresched.errors import InputError
from coresched.files import require_writable
from coresched.trajectory.reader import read_files

if TYPE_CHECKING:
    from coresched.trajectory.importers.run import ImportReport
    from coresched.trajectory.schema import Trajectory

_DESCRIPTION = """\
Write how long each task of earlier runs took, so that the next batch can admit the
longest expected first: history= of coresched.Batch and coresched.connect,
CORESCHED_HISTORY, --history of coresched sidecar and coresched advise.

A folder is that of a replay, of a record=FOLDER or of a gateway's --record; any other
recording becomes a trace by `coresched trace import` first. Attempts at one task
(epochs, retries) count with their mean; one that was cut short counts only where
none was completed.

example:
  coresched trace history recorded/ --output history.jsonl
  coresched trace history monday.jsonl tuesday.jsonl.zst --by turns --output history.jsonl"""


def fill(parser: CommandParser) -> None:
    """The description and the arguments of `trace history`."""
    parser.description = _DESCRIPTION
    parser.add_argument(
        "traces", nargs="+", metavar="TRACE|FOLDER", help=".jsonl, .jsonl.gz, .jsonl.zst, or a recording"
    )
    parser.add_argument(
        "--by",
        choices=("seconds", "output-tokens", "turns"),
        default="seconds",
        help="how long in what: seconds of inference and environment without waits for slots, which orders "
        "best; output tokens, nearly as well; turns (default %(default)s)",
    )
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="OUT", help="the history, .jsonl")


def run(args: argparse.Namespace) -> int:
    """Write the history. Returns 1 if a record was skipped."""
    from coresched.batch.history import UNITS, write_history
    from coresched.lab.task_lengths import lengths_by_task
    from coresched.trajectory.importers.run import ImportReport

    require_writable(args.output, "--output", [Path(name) for name in args.traces])
    if args.output.suffix in (".gz", ".zst"):
        raise InputError(f"--output {str(args.output)!r}: a history is not compressed; give a name in .jsonl")
    report = ImportReport()
    unit = UNITS[[name.replace("_", "-") for name in UNITS].index(args.by)]
    counted = _Counted(_trajectories(args.traces, report))
    lengths = lengths_by_task(counted, unit)
    write_history(args.output, lengths, unit, "--output")
    for line in report.skipped:
        print(f"skipped: {line}", file=sys.stderr)
    ordered = sorted(lengths.values())
    shortest, middle, longest = ordered[0], ordered[len(ordered) // 2], ordered[-1]
    stdout_console().print(
        f"{args.output}: {len(lengths):,} tasks of {counted.number:,} trajectories; {args.by} "
        f"{shortest:,.4g} to {longest:,.4g}, median {middle:,.4g}",
        soft_wrap=True,
    )
    return 1 if report.skipped else 0


class _Counted:
    """Trajectories, and how many there were."""

    def __init__(self, trajectories: "Iterator[Trajectory]") -> None:
        self._trajectories = trajectories
        self.number = 0

    def __iter__(self) -> "Iterator[Trajectory]":
        for trajectory in self._trajectories:
            self.number += 1
            yield trajectory


def _trajectories(names: list[str], report: "ImportReport") -> "Iterator[Trajectory]":
    from coresched.trajectory.importers.run import import_traces

    for name in names:
        if Path(name).is_dir():
            yield from import_traces([name], report)
        else:
            yield from read_files([name])
