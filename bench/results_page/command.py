"""`python -m bench results`: runs the benches of the page, and writes it."""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.results_page.page import page, plots
from bench.results_page.summary import BENCHES, IF_THERE, packed, read_results, summarise
from bench.rivals.cases import recorded_cases
from coresched.cli.parser import CommandParser, add_command, number
from coresched.errors import InputError

ARGUMENTS: Final = {"paper": ("--seeds", "10"), "rivals": ("--seeds", "10"), "better": ("--seeds", "20")}
"""Sizes that all together take about 25 minutes on two cores."""
OF_TRAJECTORIES: Final = ("rivals", "better", *IF_THERE)


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "results",
        summary="the results page, from all benches of the lab",
        description="Run the benches of the results page, about 25 minutes, or take what they printed with\n"
        "--json; write the page, its plots, and the numbers of both.",
        example="python -m bench results --from FOLDER",
    )
    parser.add_argument(
        "--from",
        dest="folder",
        type=Path,
        metavar="FOLDER",
        help="run nothing: "
        + ", ".join(f"{name}.json" for name in BENCHES)
        + f" are there, {', '.join(f'{name}.json' for name in IF_THERE)} may be",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="leave what the benches print there (default nowhere)"
    )
    parser.add_argument(
        "--into", type=Path, default=Path("docs"), metavar="FOLDER", help="of the page (default %(default)s)"
    )
    parser.add_argument(
        "--trajectories", nargs="+", default=(), metavar="FILE", help="recorded batches for rivals and better"
    )
    parser.add_argument(
        "--absent-environment-s",
        type=number(at_least=0),
        metavar="SECONDS",
        help="for these, as `bench rivals` takes it",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if not args.into.is_dir():
        raise InputError(f"--into {args.into} is no folder; give the one that holds results.md")
    _require_meaning(args)
    if args.folder is not None:
        write(args.folder, args.into)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name in (*BENCHES, *IF_THERE):
            run_bench(name, _arguments(name, args), folder / f"{name}.json")
        write(folder, args.into)
    return 0


def _require_meaning(args: argparse.Namespace) -> None:
    """Raises InputError for what has no effect, or would fail only after the benches before it."""
    for option in ("keep", "trajectories"):
        if args.folder is not None and getattr(args, option):
            raise InputError(f"--from runs nothing, so that --{option} has no effect; give one of them")
    if args.absent_environment_s is not None and not args.trajectories:
        raise InputError(
            "--absent-environment-s is for recorded batches; give --trajectories too, or leave it out"
        )
    if args.keep is not None and args.keep.exists() and not args.keep.is_dir():
        raise InputError(f"--keep {str(args.keep)!r} is a file; give a folder")
    list(recorded_cases(args.trajectories, None, args.absent_environment_s))


def write(folder: Path, into: Path) -> None:
    """The page, its plots and its summary, from the benches' JSON in ``folder``."""
    summary = summarise(read_results(folder))
    files = into / "results"
    files.mkdir(exist_ok=True)
    for old in files.glob("*.svg"):
        old.unlink()
    for name, svg in plots(summary).items():
        (files / f"{name}.svg").write_text(svg)
    (files / "summary.json").write_text(packed(summary))
    (into / "results.md").write_text(page(summary))
    print(f"{into / 'results.md'}, {len(list(files.glob('*.svg')))} plots in {files}")


def _arguments(name: str, args: argparse.Namespace) -> list[str]:
    given = list(ARGUMENTS.get(name, ()))
    if name in OF_TRAJECTORIES and args.trajectories:
        given += ["--trajectories", *args.trajectories]
        if args.absent_environment_s is not None:
            given += ["--absent-environment-s", f"{args.absent_environment_s:g}"]
    return given


def run_bench(name: str, arguments: Sequence[str], file: Path) -> None:
    """Raises InputError where the bench fails; it has said why."""
    print(f"bench {name}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "bench", name, *arguments, "--json"]
    with file.open("w") as output, subprocess.Popen(command, stdout=output) as bench:
        try:
            code = bench.wait()
        except KeyboardInterrupt:  # which the bench got too, and has processes of its own to end
            bench.wait()
            raise
    if code:
        raise InputError(f"python -m bench {name} ended with {code}; see what it printed above")
