"""`coresched replay` with several runs: one after another, a folder for each, and what they come to."""

import argparse
import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coresched.cli.replay_configurations import service_of, settings_of
from coresched.errors import InputError

if TYPE_CHECKING:
    from coresched.lab.replay.conduct import Conducted
    from coresched.lab.replay.endpoint import Endpoint
    from coresched.lab.replay.plan import Plan
    from coresched.lab.replay.record import Place
    from coresched.lab.replay.series import Series
    from coresched.lab.replay.spread import Repeated

Done = list[tuple["Place", "Conducted"]]


def run_series(
    args: argparse.Namespace,
    configurations: Mapping[str, argparse.Namespace],
    plan: "Plan",
    endpoints: "Sequence[Endpoint]",
    folder: Path,
) -> int:
    """Every run until one does not come to its end; what there is by then is compared."""
    from coresched.cli.replay import exit_code
    from coresched.cli.replay_output import print_series
    from coresched.lab.replay.prompts import TokenSource
    from coresched.lab.replay.record import new_folder, workload_digest
    from coresched.lab.replay.run import Ending
    from coresched.lab.replay.series import Series, run_name, write_comparison

    tokens = TokenSource(args.seed, *args.token_ids)
    series = Series(
        settings={name: settings_of(one) for name, one in configurations.items()},
        repeat=args.repeat,
        alternate=args.alternate,
        flush_cache=args.flush_cache,
        digest=workload_digest(plan, tokens),
    )
    done: Done = []
    ending = Ending("completed")
    there = os.path.exists(folder)
    new_folder(folder)
    comparison = write_comparison(folder, series, _groups(series, done))
    for number, place in enumerate(series.places()):
        # An engine that keeps its cache from run to run must not find one run's prompts in the next.
        own = tokens if args.flush_cache else dataclasses.replace(tokens, variant=number + 1)
        try:
            conducted = _run(
                args, configurations[place.configuration], plan, endpoints, folder, place, own, done
            )
        except InputError as error:
            if not done:
                _leave_as_found(folder, run_name(place), there)
                raise
            ending = Ending("failed", str(error))
            break
        except KeyboardInterrupt:
            if not done:
                _leave_as_found(folder, run_name(place), there)
                raise
            ending = Ending("interrupted", "stopped by a signal")
            break
        done.append((place, conducted))
        comparison = write_comparison(folder, series, _groups(series, done))
        ending = conducted.ending
        if ending.status != "completed":
            break
    if args.json:
        print(json.dumps({"folder": str(folder), **asdict(ending), **comparison}, indent=2))
    else:
        print_series(_groups(series, done), done, plan, folder, series)
    return exit_code(ending)


def _run(
    args: argparse.Namespace,
    configuration: argparse.Namespace,
    plan: "Plan",
    endpoints: "Sequence[Endpoint]",
    folder: Path,
    place: "Place",
    tokens: Any,
    done: Done,
) -> "Conducted":
    from coresched.cli.replay import common_to_runs, in_loop
    from coresched.cli.replay_output import progress_bar, told_run
    from coresched.lab.replay.conduct import conduct
    from coresched.lab.replay.series import run_name

    name, runs = run_name(place), args.repeat * max(1, len(args.configurations))
    batch = f"{configuration.batch or folder.name}-{name}"
    with progress_bar(plan, f"{name} ({len(done) + 1} of {runs})", runs=runs, done=len(done)) as progress:
        conducted = in_loop(
            conduct(
                plan,
                settings_of(configuration),
                endpoints,
                tokens=tokens,
                folder=folder / name,
                service=service_of(configuration, batch),
                place=place,
                progress=progress,
                **common_to_runs(args),
            )
        )
    if not args.json:
        print(f"{len(done) + 1} of {runs}  {told_run(name, conducted)}", flush=True)
    return conducted


def _leave_as_found(folder: Path, first_run: str, there: bool) -> None:
    """Nothing was run: the same command must find the folder as free as this one did."""
    from coresched.lab.replay.series import COMPARISON

    (folder / COMPARISON).unlink(missing_ok=True)
    for path in (folder / first_run, *(() if there else (folder,))):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def _groups(series: "Series", done: Done) -> "list[Repeated]":
    from coresched.lab.replay.series import run_name
    from coresched.lab.replay.spread import Repeated

    groups = []
    for name in series.settings:
        own = [(place, conducted) for place, conducted in done if place.configuration == name]
        completed = [(place.round, one.metrics) for place, one in own if one.ending.status == "completed"]
        statuses = {run_name(place): one.ending.status for place, one in own}
        groups.append(Repeated(name, statuses, dict(completed)))
    return groups
