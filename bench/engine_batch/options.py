"""Options that the batches of both engines have."""

import sys
from pathlib import Path

from coresched.cli.parser import CommandParser, count


def add_batch_options(parser: CommandParser, engine: str, which: str, **defaults: int) -> None:
    """The engine's Python, what is run, how often, and what is kept.

    ``which`` ends "the first N of"; ``defaults`` are of samples, turns_over, environment_concurrency, rounds.
    """
    parser.add_argument(
        f"--{engine}-python",
        default=sys.executable,
        metavar="PATH",
        help=f"a Python that has {engine} and coresched (default: this one)",
    )
    parser.add_argument("--trace", type=Path, metavar="FILE", help="trajectories (default: the shipped ones)")
    for name, metavar, meaning in (
        ("samples", "N", f"the first N of {which}"),
        ("turns-over", "N", "of each the first 1/N of its turns, rounded up"),
        ("environment-concurrency", "C_E", "environment stages at once"),
        ("rounds", "N", "how often each set-up is run"),
    ):
        default = defaults[name.replace("-", "_")]
        told = f"{meaning} (default {default})"
        parser.add_argument(f"--{name}", type=count, default=default, metavar=metavar, help=told)
    parser.add_argument(
        "--quick", action="store_true", help="one round of a small batch: to see that it runs, not to quote"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the folders of the replays here")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
