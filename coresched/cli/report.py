"""`coresched report`: what replays and recorded runs measured, as a page and as a trace to browse."""

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coresched.cli.options import add_output_options
from coresched.cli.parser import CommandParser, add_command
from coresched.errors import InputError
from coresched.files import require_writable, write_whole

if TYPE_CHECKING:
    from coresched.lab.replay.groups import RunGroup
    from coresched.lab.replay.recorded import RecordedRun


_MOST_FAULTS = 20


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "report",
        summary="draw replays and recorded runs, or compare them",
        description="Draw what `coresched replay` left in its folders, or what a harness and gateways have\n"
        "recorded there: completion, requests in flight, load of each worker, cache reuse by turn,\n"
        "what each trajectory did when. Several folders are compared, the first being the reference;\n"
        "they must have replayed the same workload, or recorded the same samples. A run that was\n"
        "stopped is drawn up to there. The folder of several replays stands for all of these, and\n"
        "of repeated ones there are medians and spread by configuration.",
        example="coresched report stock coordinated --report compared.html",
    )
    parser.add_argument(
        "folders",
        nargs="+",
        type=Path,
        metavar="FOLDER",
        help="the --output of a replay, or the record= of a batch",
    )
    add_output_options(parser, report="coresched-report.html")
    parser.add_argument(
        "--perfetto",
        type=Path,
        metavar="FILE.json",
        help="also write a trace for ui.perfetto.dev or chrome://tracing",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # Here, so that the other commands start without all of this.
    from coresched.cli.replay_output import print_spread, runs_table
    from coresched.cli.terminal import stdout_console
    from coresched.lab.replay.groups import run_groups
    from coresched.lab.replay.perfetto import perfetto_trace
    from coresched.lab.replay.recorded import replay_files
    from coresched.lab.replay.series import runs_in
    from coresched.lab.replay.table import unit_of
    from coresched.lab.report.replay_page import replay_page, verdict

    report: Path | None = args.report or (None if args.json else args.default_report)
    series = [(folder, runs_in(folder)) for folder in args.folders]
    folders = [run for folder, begun in series for run in (begun.folders if begun else [folder])]
    missing = {str(folder): begun.missing for folder, begun in series if begun and begun.missing}
    taken = [path for folder in folders for path in replay_files(folder)]
    for flag, path in (("--report", report), ("--perfetto", args.perfetto)):
        if path is not None:
            require_writable(path, flag, taken)
    if report is not None and args.perfetto is not None and report.resolve() == args.perfetto.resolve():
        raise InputError(f"--report and --perfetto are both {str(report)!r}; give each its own file")
    runs = _recorded(folders)
    for one in runs:
        for fault in one.faults[:_MOST_FAULTS]:
            print(f"{one.name}: {fault}", file=sys.stderr)
        if len(one.faults) > _MOST_FAULTS:
            print(f"{one.name}: {len(one.faults) - _MOST_FAULTS:,} more", file=sys.stderr)
    groups = run_groups(runs)
    if report is not None:
        write_whole(report, replay_page(runs), "--report")
    if args.perfetto is not None:
        write_whole(args.perfetto, perfetto_trace(runs).decode(), "--perfetto")
    if args.json:
        print(json.dumps(_as_json(runs, groups) | ({"not_begun": missing} if missing else {}), indent=2))
        return 0
    console = stdout_console()
    named = [(run.name, run.metrics) for run in runs]
    console.print(runs_table(named), crop=False)
    console.print()
    if len(groups) < len(runs):
        print_spread(console, [group.repeated for group in groups])
        console.print()
    console.print(verdict(runs, unit_of(named)), highlight=False)
    for folder, names in missing.items():
        console.print(f"{folder} is not whole, not begun were: {', '.join(names)}", highlight=False)
    console.print(f"\nreport: {report}", highlight=False)
    if args.perfetto is not None:
        console.print(f"trace: {args.perfetto}", highlight=False)
    return 0


def _as_json(runs: "list[RecordedRun]", groups: "list[RunGroup]") -> dict[str, Any]:
    """What each run measured and, of those that ran several times, what each configuration comes to."""
    from coresched.lab.replay.spread import spreads_as_json

    found: dict[str, Any] = {
        "runs": [
            {"name": run.name, "status": run.status}
            | ({} if run.configuration is None else {"configuration": run.configuration, "round": run.round})
            | asdict(run.metrics)
            for run in runs
        ]
    }
    if len(groups) < len(runs):
        repeated = [group.repeated for group in groups]
        found["configurations"] = [spreads_as_json(group, repeated[0]) for group in repeated]
    return found


def _recorded(folders: list[Path]) -> "list[RecordedRun]":
    """The runs, each under the name of its folder, or its whole path where two are called the same."""
    from coresched.lab.replay.recorded import read_recorded

    resolved = [folder.resolve() for folder in folders]
    for place, folder in enumerate(resolved):
        if folder in resolved[:place]:
            raise InputError(f"{str(folders[place])!r} is given twice; give each folder once")
    shared = Counter(folder.name for folder in resolved)
    runs = [
        read_recorded(given, name=folder.name if shared[folder.name] == 1 else str(given))
        for given, folder in zip(folders, resolved, strict=True)
    ]
    for given, other in zip(folders, runs, strict=True):
        if other.digest != runs[0].digest:
            raise InputError(
                f"{str(given)!r} replayed other prompts than {str(folders[0])!r}; compare replays of the "
                "same traces, --seed and --token-ids, or recordings of the same samples"
            )
    for given, other in zip(folders, runs, strict=True):
        first = next(run for run in runs if run.configuration == other.configuration)
        if other.configuration is not None and other.settings != first.settings:
            raise InputError(
                f"{str(given)!r} and {first.name!r} are both of configuration {other.configuration!r}, but "
                "with other settings; report one at a time"
            )
    return runs
