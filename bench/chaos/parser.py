"""Arguments of `python -m bench chaos`."""

import argparse
import random
from pathlib import Path

from coresched.cli.parser import CommandParser, add_command


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "chaos",
        summary="whether anything is lost when processes are killed",
        description="Run a batch in 64 harness processes against one service with simulated workers, three\n"
        "times: calm; with the service killed five times; with service, workers and harness\n"
        "processes killed, and some stalled. Then check what the processes wrote down: each\n"
        "sample finished once, run by one at a time, C_S and C_E kept. Exit code 1 if not.",
        example="python -m bench chaos --quick",
    )
    parser.add_argument(
        "--quick", action="store_true", help="12 processes and 150 samples: half a minute each"
    )
    parser.add_argument("--only", choices=["calm", "service", "all"], help="only this one of the three runs")
    parser.add_argument(
        "--seed",
        type=int,
        default=random.SystemRandom().randrange(1_000_000),
        metavar="N",
        help="draws what happens to whom and when (default: a new one, which is printed)",
    )
    parser.add_argument(
        "--keep", type=_new_folder, metavar="FOLDER", help="keep journals and logs in this folder"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.set_defaults(run=run)


def _new_folder(text: str) -> Path:
    folder = Path(text)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise argparse.ArgumentTypeError(f"{text!r} must be a new or empty folder, it is not; give another")
    return folder


def run(args: argparse.Namespace) -> int:
    # Here, so that the other benchmarks run without gRPC.
    from bench.chaos.command import carry_out

    return carry_out(args)
