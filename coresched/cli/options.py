"""The options that shape runs, shared by `demo`, `simulate` and in part `replay`."""

import argparse
from pathlib import Path

from coresched.cli.parser import CommandParser, count, integer, number
from coresched.lab.ladder import Choices


def add_run_options(
    parser: CommandParser, *, workers: int, environment_concurrency: int | None, worker_model: str
) -> None:
    runs = parser.add_argument_group("the deployment")
    runs.add_argument(
        "--workers", type=count, default=workers, metavar="W", help="model workers (default %(default)s)"
    )
    runs.add_argument(
        "--environment-concurrency",
        type=count,
        default=environment_concurrency,
        metavar="C_E",
        help="environment jobs at once "
        + ("(default: no limit)" if environment_concurrency is None else "(default %(default)s)"),
    )
    runs.add_argument(
        "--worker-model",
        metavar="NAME|FILE",
        help=f"memory and step times of a worker (default {worker_model})",
    )
    parser.set_defaults(default_worker_model=worker_model)
    policy = parser.add_argument_group("the scheduling (defaults come from the capacity model)")
    policy.add_argument(
        "--sample-concurrency",
        type=count,
        metavar="C_S",
        help="samples admitted at once in the decoupled runs",
    )
    policy.add_argument(
        "--state-ratio",
        type=number(above=0),
        metavar="R",
        help="state memory over KV memory after the baseline",
    )
    policy.add_argument(
        "--label-capacity", type=count, metavar="C_A", help="trajectory labels a worker remembers (RP)"
    )
    policy.add_argument(
        "--load-bound",
        type=number(at_least=1),
        default=1.25,
        metavar="ALPHA",
        help="LBCH bound (default %(default)s)",
    )
    add_caas_options(policy)
    policy.add_argument(
        "--seed",
        type=integer,
        default=0,
        metavar="N",
        help="0 keeps the trace's order; others shuffle it and the hash placement (default %(default)s)",
    )


def add_caas_options(group: "argparse._ArgumentGroup") -> None:
    """B and D_I of CAAS's key."""
    group.add_argument(
        "--band-s",
        type=number(above=0),
        default=30.0,
        metavar="B",
        help="CAAS arrival band (default %(default)s)",
    )
    group.add_argument(
        "--bucket-s",
        type=number(above=0),
        default=1.0,
        metavar="D_I",
        help="CAAS duration bucket (default %(default)s)",
    )


def add_output_options(parser: CommandParser, *, report: str) -> None:
    output = parser.add_argument_group("output")
    output.add_argument(
        "--json", action="store_true", help="print the results as JSON, and no report unless --report"
    )
    output.add_argument(
        "--report", type=Path, metavar="FILE.html", help=f"where the HTML report goes (default {report})"
    )
    parser.set_defaults(default_report=Path(report))


def choices_of(args: argparse.Namespace) -> Choices:
    return Choices(
        workers=args.workers,
        environment_concurrency=args.environment_concurrency,
        sample_concurrency=args.sample_concurrency,
        state_ratio=args.state_ratio,
        label_capacity=args.label_capacity,
        load_bound=args.load_bound,
        band_s=args.band_s,
        bucket_s=args.bucket_s,
        seed=args.seed,
    )
