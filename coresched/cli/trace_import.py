"""`coresched trace import`: recordings of other tools, written as a trace."""

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from coresched.cli.parser import CommandParser
from coresched.cli.terminal import stdout_console
from coresched.files import require_writable
from coresched.trajectory.writer import write_trajectories

if TYPE_CHECKING:
    from coresched.trajectory.importers.run import ImportReport

_MOST_LISTED = 20

_DESCRIPTION = """\
Read recordings of agent harnesses and serving systems, and write them as a trace.

formats (told apart by what is in a file; --from where that fails):
{formats}

Every trajectory states in its meta what its token counts and durations are worth,
and so does the summary: exact (measured), derived (from other time stamps),
estimated, absent. A record that cannot be imported is reported with its place,
and the rest is imported: exit code 1. Nothing could be imported: exit code 2.

example:
  coresched trace import runs/*.traj.json --output runs.jsonl.zst
  coresched trace import logs/*.eval --from inspect --output evals.jsonl
  coresched trace import recorded/ --output batch.jsonl"""


def fill(parser: CommandParser) -> None:
    """The description and the arguments of `trace import`."""
    from coresched.trajectory.importers.formats import FORMATS

    formats = "\n".join(f"  {name:<16}{importer.files}" for name, importer in FORMATS.items())
    parser.description = _DESCRIPTION.format(formats=formats)
    parser.add_argument("files", nargs="+", metavar="FILE", help="a recording; .gz and .zst are unpacked")
    parser.add_argument(
        "--from", dest="form", choices=list(FORMATS), metavar="FORMAT", help="the format of all files"
    )
    parser.add_argument("--output", required=True, metavar="OUT", help=".jsonl, .jsonl.gz or .jsonl.zst")


def run(args: argparse.Namespace) -> int:
    """Import the files. Returns 1 if a record was skipped."""
    from coresched.trajectory.importers.run import ImportReport, import_traces

    require_writable(Path(args.output), "--output", _inputs(args.files))
    report = ImportReport()
    write_trajectories(args.output, import_traces(args.files, report, args.form))
    _list("skipped", report.skipped)
    _list("left out, as the clock cannot be right", report.anomalies)
    _summarise(args.output, report)
    return 1 if report.skipped else 0


def _inputs(names: list[str]) -> list[Path]:
    from coresched.recording.reader import recording_files
    from coresched.trajectory.importers.run import recording

    return [path for name in names for path in (Path(recording(name)), *recording_files(name))]


def _list(what: str, lines: list[str]) -> None:
    for line in lines[:_MOST_LISTED]:
        print(f"{what}: {line}", file=sys.stderr)
    if len(lines) > _MOST_LISTED:
        print(f"{what}: {len(lines) - _MOST_LISTED:,} more", file=sys.stderr)


def _summarise(output: str, report: "ImportReport") -> None:
    console = stdout_console()
    formats = ", ".join(f"{number:,} {name}" for name, number in report.formats.items())
    console.print(
        f"{output}: {_number(report.trajectories, 'trajectory', 'trajectories')}, "
        f"{_number(report.turns, 'turn')} from {_number(report.files, 'file')} ({formats})",
        soft_wrap=True,
    )
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="cyan", no_wrap=True)
    facts.add_column(overflow="fold")
    facts.add_column(justify="right", no_wrap=True)
    _add(facts, "tokens", report.tokens, "trajectory", "trajectories")
    _add(facts, "inference", report.inference, "turn", "turns")
    _add(facts, "environment", report.environment, "stage", "stages")
    if report.compacted:
        what = "the context was given up and begun anew: a trajectory for each part"
        facts.add_row("context", what, _number(report.compacted, "sample"))
    if report.overstated:
        most = _number(report.overstated_tokens, "token")
        what = f"a prompt got shorter, which a trace cannot say: imported too long by {most} at the most"
        label = "" if report.compacted else "context"
        facts.add_row(label, what, _number(report.overstated, "trajectory", "trajectories"))
    if report.cut_short:
        what = "it did not complete: imported up to where it ended"
        facts.add_row("cut short", what, _number(report.cut_short, "sample"))
    if report.anomalies:
        facts.add_row("clocks", "left out, listed above", _number(len(report.anomalies), "duration"))
    if report.skipped:
        facts.add_row("skipped", "not imported, listed above", _number(len(report.skipped), "record"))
    console.print(facts)


def _add(facts: Table, name: str, counts: Counter[str], one: str, many: str) -> None:
    for quality, number in counts.most_common():
        facts.add_row(name, quality, _number(number, one, many))
        name = ""


def _number(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
