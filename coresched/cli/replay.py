"""`coresched replay`: recorded trajectories against live endpoints."""

import argparse
import json
import sys
import time
from collections.abc import Coroutine
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coresched.cli.parser import CommandParser
from coresched.cli.replay_configurations import configurations_of, service_of, settings_of
from coresched.cli.replay_endpoints import endpoints_of
from coresched.cli.replay_options import add_options
from coresched.errors import InputError

if TYPE_CHECKING:
    from coresched.lab.replay.conduct import Conducted
    from coresched.lab.replay.plan import Plan
    from coresched.lab.replay.record import Run
    from coresched.lab.replay.run import Ending

INTERRUPTED = 130


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    add_options(commands).set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # Here, so that the other commands start without aiohttp.
    from coresched.lab.replay.plan import make_plan
    from coresched.trajectory.reader import load_trajectories

    endpoints = endpoints_of(args.endpoints)
    folder = args.output or Path(time.strftime("coresched-replay-%Y%m%d-%H%M%S"))
    configurations = configurations_of(args)
    if args.repeat == 1 and not args.configurations:
        (configuration,) = configurations.values()
        settings_of(configuration)
    plan = make_plan(
        load_trajectories(args.traces), seed=args.seed, absent_environment_s=args.absent_environment_s
    )
    if args.repeat > 1 or args.configurations:
        from coresched.cli.replay_series import run_series

        return run_series(args, configurations, plan, endpoints, folder)
    return _run_once(args, plan, endpoints, folder)


def _run_once(args: argparse.Namespace, plan: "Plan", endpoints: list[Any], folder: Path) -> int:
    from coresched.cli.replay_output import print_run, progress_bar
    from coresched.lab.replay.conduct import conduct
    from coresched.lab.replay.prompts import TokenSource

    tokens = TokenSource(args.seed, *args.token_ids)
    earlier = None if args.against is None else _earlier(args.against, plan, tokens)
    with progress_bar(plan) as progress:
        conducted = in_loop(
            conduct(
                plan,
                settings_of(args),
                endpoints,
                tokens=tokens,
                folder=folder,
                service=service_of(args, folder.name),
                progress=progress,
                **common_to_runs(args),
            )
        )
    if args.json:
        print(
            json.dumps(
                {"folder": str(folder), **asdict(conducted.ending), "metrics": asdict(conducted.metrics)},
                indent=2,
            )
        )
    else:
        print_run(conducted, plan, folder, earlier)
    return exit_code(conducted.ending)


def common_to_runs(args: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of `conduct` that are the same for all runs of a command."""
    return {
        "traces": args.traces,
        "protocol": args.protocol,
        "model": args.model,
        "flush_cache": args.flush_cache,
        "warm_up": args.warm_up,
    }


def exit_code(ending: "Ending") -> int:
    """That of a command whose last run ended so; says why on stderr where it was before the end."""
    if ending.status == "completed":
        return 0
    print(f"coresched replay: {ending.reason}; what was measured by then is kept", file=sys.stderr)
    return INTERRUPTED if ending.status == "interrupted" else 1


def in_loop(work: "Coroutine[Any, Any, Conducted]") -> "Conducted":
    import asyncio

    try:
        import uvloop
    except ImportError:  # a platform without it
        return asyncio.run(work)
    return uvloop.run(work)


def _earlier(folder: Path, plan: "Plan", tokens: Any) -> "Run":
    from coresched.lab.replay.record import read_run, workload_digest

    earlier = read_run(folder, "--against")
    if earlier.digest != workload_digest(plan, tokens):
        raise InputError(
            f"--against {str(folder)!r} replayed other prompts; compare replays of the same traces, --seed "
            "and --token-ids"
        )
    return earlier
