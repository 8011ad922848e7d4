"""The folder of a run: its configuration, its events as they come, and its metrics in the end."""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import msgspec

from coresched import __version__
from coresched.errors import InputError
from coresched.files import write_whole
from coresched.lab.replay.endpoint import Endpoint, Served
from coresched.lab.replay.plan import Plan, ReplaySettings
from coresched.lab.replay.prompts import TokenSource
from coresched.lab.replay.run import Ending
from coresched.lab.replay.summary import ReplayMetrics
from coresched.lab.replay.warm_up import OUTPUT_TOKENS, PROMPT_TOKENS

RUN: Final = "run.json"
EVENTS: Final = "events.jsonl"
SUMMARY: Final = "summary.json"


@dataclass(frozen=True)
class Client:
    """What the replay itself took on its machine, in seconds of the wall clock and of its CPU."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True)
class Place:
    """Which run of several this is: of which configuration, in which round, from 1."""

    configuration: str
    round: int


@dataclass(frozen=True)
class Run:
    """A run as its folder tells it."""

    name: str
    digest: str
    status: str
    metrics: ReplayMetrics


def workload_digest(plan: Plan, tokens: TokenSource) -> str:
    """Equal for two replays that send the same prompts in the same order with the same pauses.

    The variant of the token ids does not count: it changes which prompts are found in a cache, not how long
    they are.
    """
    digest = hashlib.sha256(f"{tokens.seed} {tokens.low} {tokens.high}\n".encode())
    for sample in plan.samples:
        digest.update(msgspec.json.encode((sample.label, sample.trajectory, sample.environment_s)) + b"\n")
    return digest.hexdigest()


def new_folder(path: Path) -> Path:
    """Make the folder of a run. Raises InputError if it is there with something in it, or cannot be made."""
    try:
        path.mkdir(exist_ok=True)
        if os.listdir(path):
            raise InputError(f"--output {str(path)!r} is not empty; choose another name")
        if not os.access(path, os.W_OK):
            raise InputError(f"--output {str(path)!r} is not writable; choose another")
    except FileNotFoundError:
        raise InputError(
            f"--output {str(path)!r}: there is no directory {str(path.parent)!r}; create it first"
        ) from None
    except OSError as error:
        raise InputError(f"--output {str(path)!r} cannot be used: {error.strerror}") from None
    return path


def write_run(
    folder: Path,
    *,
    traces: Sequence[Path],
    plan: Plan,
    settings: ReplaySettings,
    tokens: TokenSource,
    endpoints: Sequence[Endpoint],
    served: Sequence[Served],
    path: str,
    service: str | None,
    batch: str | None,
    flush_cache: bool = False,
    warm_up: int = 0,
    place: Place | None = None,
) -> None:
    """What the replay is going to do, before it begins."""
    _write(
        folder / RUN,
        {
            "version": __version__,
            "started_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "traces": [str(trace) for trace in traces],
            "samples": len(plan.samples),
            "turns": plan.turns,
            "workload_digest": workload_digest(plan, tokens),
            "seed": tokens.seed,
            "token_ids": [tokens.low, tokens.high],
            "token_ids_variant": tokens.variant,
            "flush_cache": flush_cache,
            "warm_up": _warm_up(warm_up),
            "settings": asdict(settings),
            "protocol": f"POST {path}",
            "endpoints": [
                asdict(endpoint) | asdict(one) for endpoint, one in zip(endpoints, served, strict=True)
            ],
            "service": service,
            "batch": batch,
            "configuration": None if place is None else place.configuration,
            "round": None if place is None else place.round,
        },
    )


def _warm_up(requests: int) -> dict[str, Any] | None:
    """What went to each endpoint before the clock, and is in no event."""
    if not requests:
        return None
    return {
        "requests_per_endpoint": requests,
        "prompt_tokens": PROMPT_TOKENS,
        "output_tokens": OUTPUT_TOKENS,
        "labelled": False,
    }


def write_summary(folder: Path, ending: Ending, metrics: ReplayMetrics, client: Client) -> None:
    """What came of it, whole or up to where it was stopped."""
    _write(
        folder / SUMMARY,
        {
            "status": ending.status,
            "reason": ending.reason,
            "metrics": asdict(metrics),
            "client": {
                **asdict(client),
                "cpu_ms_per_turn": client.cpu_s * 1000 / metrics.turns if metrics.turns else None,
            },
        },
    )


def read_run(folder: Path, field: str) -> Run:
    """A run that has ended. Raises InputError naming ``field`` for a folder that is none."""
    try:
        configuration = json.loads((folder / RUN).read_bytes())
        summary = json.loads((folder / SUMMARY).read_bytes())
        metrics = msgspec.convert(summary["metrics"], ReplayMetrics)
        return Run(folder.name, configuration["workload_digest"], summary["status"], metrics)
    except OSError as error:
        raise InputError(
            f"{field} {str(folder)!r} is no folder of a finished replay: {error.strerror}: {error.filename}"
        ) from None
    except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
        raise InputError(f"{field} {str(folder)!r} is no folder of a finished replay: {error}") from None


def _write(path: Path, values: dict[str, Any]) -> None:
    write_whole(path, json.dumps(values, indent=2) + "\n", "--output")
