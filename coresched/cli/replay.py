"""`coresched replay`: recorded trajectories against live endpoints."""

import argparse
import json
import sys
import time
from collections.abc import Coroutine
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from coresched.cli.parser import CommandParser
from coresched.cli.replay_options import add_options
from coresched.errors import InputError

if TYPE_CHECKING:
    from coresched.lab.replay.conduct import Conducted
    from coresched.lab.replay.endpoint import Endpoint
    from coresched.lab.replay.plan import Plan
    from coresched.lab.replay.record import Run

INTERRUPTED = 130


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    add_options(commands).set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # Here, so that the other commands start without aiohttp.
    from coresched.cli.replay_output import print_run, progress_bar
    from coresched.lab.replay.conduct import conduct
    from coresched.lab.replay.plan import ReplaySettings, make_plan
    from coresched.lab.replay.prompts import TokenSource
    from coresched.lab.replay.service import Service
    from coresched.trajectory.reader import load_trajectories

    endpoints = _endpoints(args.endpoints)
    folder = args.output or Path(time.strftime("coresched-replay-%Y%m%d-%H%M%S"))
    _check_service_options(args)
    plan = make_plan(
        load_trajectories(args.traces), seed=args.seed, absent_environment_s=args.absent_environment_s
    )
    tokens = TokenSource(args.seed, *args.token_ids)
    earlier = None if args.against is None else _earlier(args.against, plan, tokens)
    settings = ReplaySettings(
        sample_concurrency=args.sample_concurrency,
        environment_concurrency=args.environment_concurrency,
        environment_policy=args.environment_policy,
        router=args.router,
        load_bound=args.load_bound or 1.25,
        band_s=args.band_s,
        bucket_s=args.bucket_s,
        speed=args.speed,
        labelled=not args.no_labels,
        patience_s=args.patience_s,
        request_timeout_s=args.request_timeout_s,
    )
    service = args.service and Service(
        args.service, args.batch or folder.name, args.ca, args.certificate, args.key
    )
    with progress_bar(plan) as progress:
        conducted = _in_loop(
            conduct(
                plan,
                settings,
                endpoints,
                tokens=tokens,
                folder=folder,
                traces=args.traces,
                protocol=args.protocol,
                model=args.model,
                service=service,
                flush_cache=args.flush_cache,
                progress=progress,
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
    return _exit_code(conducted)


def _exit_code(conducted: "Conducted") -> int:
    ending = conducted.ending
    if ending.status == "completed":
        return 0
    print(f"coresched replay: {ending.reason}; what was measured by then is kept", file=sys.stderr)
    return INTERRUPTED if ending.status == "interrupted" else 1


def _in_loop(work: "Coroutine[Any, Any, Conducted]") -> "Conducted":
    import asyncio

    try:
        import uvloop
    except ImportError:  # a platform without it
        return asyncio.run(work)
    return uvloop.run(work)


def _endpoints(given: list[str]) -> "list[Endpoint]":
    from coresched.core.checks import check_label
    from coresched.lab.replay.endpoint import Endpoint

    endpoints: list[Endpoint] = []
    for text in given:
        before, scheme, rest = text.partition("://")
        name, equals, kind = before.rpartition("=")
        url = f"{kind}{scheme}{rest}".rstrip("/")
        try:
            parts = urlsplit(url)
            usable = (
                parts.scheme in ("http", "https") and parts.hostname and not (parts.query or parts.fragment)
            )
            _ = parts.port  # raises for one that is none
        except ValueError:
            usable = False
        if not usable:
            raise InputError(
                f"--endpoint {text!r} must be [NAME=]URL, such as http://127.0.0.1:30000 or w0=http://host:30000"
            )
        try:
            check_label(name if equals else url, f"--endpoint {text!r}: the name")
        except ValueError as error:
            raise InputError(str(error)) from None
        endpoints.append(Endpoint(name if equals else url, url))
        for field in ("name", "url"):
            if [getattr(one, field) for one in endpoints].count(getattr(endpoints[-1], field)) > 1:
                raise InputError(f"--endpoint {text!r} has the {field} of another one; give each once")
    return endpoints


def _check_service_options(args: argparse.Namespace) -> None:
    """What only a service takes, and what only a batch in this process does."""
    if args.service is None:
        for name in ("batch", "ca", "certificate", "key"):
            if getattr(args, name) is not None:
                raise InputError(f"--{name} is for a batch at a service; add --service, or leave it out")
    elif args.load_bound is not None or args.router == "consistent-hash":
        named = "--load-bound" if args.load_bound is not None else "--router consistent-hash"
        raise InputError(
            f"{named} is a matter of the service; give `coresched serve` a --load-bound (a large one leaves "
            "each trajectory at home)"
        )


def _earlier(folder: Path, plan: "Plan", tokens: Any) -> "Run":
    from coresched.lab.replay.record import read_run, workload_digest

    earlier = read_run(folder, "--against")
    if earlier.digest != workload_digest(plan, tokens):
        raise InputError(
            f"--against {str(folder)!r} replayed other prompts; compare replays of the same traces, --seed "
            "and --token-ids"
        )
    return earlier
