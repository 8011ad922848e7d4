"""`coresched advise`: the configuration for a workload, and what it would bring."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from coresched.batch.history import read_history
from coresched.cli.parser import CommandParser, add_command, count, number
from coresched.cli.terminal import stdout_console
from coresched.errors import InputError
from coresched.lab.simulator.model import DEFAULT_MODEL, load_worker_model
from coresched.lab.units import TimeUnit, percent_text, unsigned_zero
from coresched.trajectory.reader import load_trajectories

if TYPE_CHECKING:
    from coresched.lab.advice.advice import Advice
    from coresched.lab.advice.judgement import Interval

TABLE_WIDTH = 78


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "advise",
        summary="the configuration that suits your trajectories, and what it would bring",
        description="Search in virtual time for the sample concurrency, cache pools, routing, order inside\n"
        "the workers and order of environment jobs that make this batch end soonest. What is\n"
        "found is judged on other orders of the batch than it was found on, against the batch as\n"
        "it runs today; a change that brings less than 1 % is not advised.",
        example="coresched advise traces.jsonl --workers 2 --environment-concurrency 8 \\\n"
        "    --as-it-is sample-concurrency=16 --as-it-is worker-policy=lpm",
    )
    parser.add_argument(
        "traces", nargs="+", type=Path, metavar="TRACE", help="trajectories: .jsonl, .jsonl.gz, .jsonl.zst"
    )
    deployment = parser.add_argument_group("the deployment")
    deployment.add_argument(
        "--workers", type=count, default=2, metavar="W", help="model workers (default %(default)s)"
    )
    deployment.add_argument(
        "--environment-concurrency",
        type=count,
        metavar="C_E",
        help="environment jobs at once (default: no limit)",
    )
    deployment.add_argument(
        "--worker-model",
        default=DEFAULT_MODEL,
        metavar="NAME|FILE",
        help="memory and step times of a worker (default %(default)s)",
    )
    deployment.add_argument(
        "--as-it-is",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what is set today: sample-concurrency, admission-policy, state-ratio, routing, load-bound, "
        "worker-policy, label-capacity, environment-policy, band-s, bucket-s (default: one limit for samples "
        "and environments, the engine's pools, fcfs, a cache-aware router); repeat for each",
    )
    parser.add_argument(
        "--absent-environment-s",
        type=number(at_least=0),
        metavar="S",
        help="assume this duration where a trace does not have one (default: refuse the trace)",
    )
    parser.add_argument(
        "--history",
        type=Path,
        metavar="FILE",
        help="a file of `coresched trace history`: try admission by it, too",
    )
    parser.add_argument(
        "--expectation-noise",
        type=number(at_least=0),
        default=0.6,
        metavar="SIGMA",
        help="how wrong the history is about this batch: the standard deviation of the logarithm of expected "
        "over true length (default %(default)s)",
    )
    parser.add_argument(
        "--orders",
        type=count,
        default=10,
        metavar="N",
        help="orders of the batch that the configurations are judged on, at least 6 (default %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the advice as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from coresched.lab.advice.advice import advise
    from coresched.lab.advice.judgement import LEAST_SEEDS

    if args.orders < LEAST_SEEDS:
        raise InputError(f"--orders {args.orders} is too few for an interval; give at least {LEAST_SEEDS}")
    if args.history is not None:
        read_history(args.history)
    trajectories = load_trajectories(args.traces)
    model = load_worker_model(args.worker_model)
    with Console(stderr=True).status("simulating ...") as status:
        advice = advise(
            trajectories,
            model,
            workers=args.workers,
            environment_concurrency=args.environment_concurrency,
            as_it_is=args.as_it_is,
            orders=args.orders,
            absent_environment_s=args.absent_environment_s,
            history=None if args.history is None else str(args.history),
            expectation_noise=args.expectation_noise,
            ran=lambda runs: status.update(f"simulating ... {runs} runs"),
        )
    if args.json:
        print(json.dumps(_as_json(advice), indent=2))
        return 0
    names = ", ".join(path.name for path in args.traces)
    console = stdout_console()
    console.print(f"coresched advise: {len(trajectories)} trajectories of {names}, {args.workers} worker(s)")
    print_advice(advice, console)
    console.print(
        f"\nSimulated on worker model {model.name}: {advice.runs} runs; medians and 95 % intervals over "
        f"{args.orders} orders of the batch that the search did not see."
    )
    return 0


def _as_json(advice: "Advice") -> dict[str, Any]:
    return {
        "leave_as_it_is": advice.leave,
        **asdict(advice),
        "steps": [asdict(step) for step in advice.steps],
    }


def print_advice(advice: "Advice", console: Console) -> None:
    """The verdict, the configurations side by side, what each part brings, and how to set it up."""
    rows = (advice.as_it_is, advice.coordinated, advice.advised)
    unit = TimeUnit(max(one.makespan_s.high for one in rows))
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    for head in (
        "",
        f"makespan\n({unit.name})",
        f"interval\n({unit.name})",
        "saved",
        "interval",
        "reuse",
        "x bound",
    ):
        table.add_column(head, justify="right" if head else "left", no_wrap=True)
    for one in rows:
        made, saved = one.makespan_s, one.saved
        table.add_row(
            one.name,
            unit.text(made.median),
            f"{unit.text(made.low)} to {unit.text(made.high)}",
            *(("-", "-") if one is advice.as_it_is else (percent_text(saved.median), _percents(saved))),
            percent_text(one.cache_reuse),
            f"{one.of_bound:.2f}",
        )
    console.print()
    console.print(table, width=max(TABLE_WIDTH, console.width), crop=False)
    console.print()
    if advice.leave:
        console.print("Leave it as it is: no change would be sure to save 1 % of the makespan.")
        return
    parts = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    for head in ("change", "as it is", "advised", "saves", "interval"):
        parts.add_column(head, justify="right" if head in ("saves", "interval") else "left")
    for change in advice.contributions:
        parts.add_row(
            change.part,
            _values(change.as_it_is),
            _values(change.advised),
            percent_text(change.saved.median),
            _percents(change.saved),
        )
    console.print(parts)
    console.print("(each beside all other changes: what is lost if it alone is left out)")
    for step in advice.steps:
        console.print(f"\n{step.what}:")
        console.print(f"  {step.text}", soft_wrap=True)


def _percents(interval: "Interval") -> str:
    low, high = (unsigned_zero(value * 100, 1) for value in (interval.low, interval.high))
    return f"{low:.1f} to {high:.1f} %"


def _values(settings: dict[str, Any]) -> str:
    return ", ".join(
        f"{name.replace('_', '-')} {value:.4g}"
        if isinstance(value, float)
        else f"{name.replace('_', '-')} {value}"
        for name, value in settings.items()
    )
