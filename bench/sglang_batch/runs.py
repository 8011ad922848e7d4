"""One set-up after another on servers that stay up, round by round."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.sglang_batch.servers import Engines, engines, service
from bench.sglang_batch.setups import ENGINES, LABELS_VARIABLE, SETUPS, Device, SetUp
from coresched.capacity.plan import Plan
from coresched.lab.replay.conduct import Conducted, conduct
from coresched.lab.replay.plan import make_plan
from coresched.lab.replay.prompts import TokenSource
from coresched.lab.replay.service import Service
from coresched.lab.replay.summary import ReplayMetrics
from coresched.trajectory.schema import Trajectory


@dataclass(frozen=True)
class Comparison:
    """What all runs share. ``device`` has the options of `coresched sglang-sim` that say what it is."""

    python: str
    workload: Sequence[Trajectory]
    made: Plan
    device: Device
    options: Sequence[str]
    environment_concurrency: int
    speed: float


@dataclass(frozen=True)
class Run:
    """One finished replay, and the CPU that was taken meanwhile, in seconds of the wall clock and of CPUs."""

    round: int
    setup: SetUp
    sample_concurrency: int
    metrics: ReplayMetrics
    wall_s: float
    engines_cpu_s: float
    client_cpu_s: float


class StoppedError(RuntimeError):
    """A replay that did not come to its end; the message says why."""


def all_runs(comparison: Comparison, rounds: int, folder: Path) -> Iterator[Run]:
    """Boot both pairs of servers, then run the set-ups in turns; caches are flushed before each.

    The folder of each run is kept in ``folder``. Raises NoServerError, StoppedError.
    """
    device, made = comparison.device, comparison.made
    with ExitStack() as stack:
        pairs = {
            planned: stack.enter_context(
                engines(
                    comparison.python,
                    ENGINES,
                    comparison.options,
                    device.flags(made if planned else None),
                    environment if planned else {},
                )
            )
            for planned, environment in (
                (False, {}),
                (True, {**made.engine_environment, LABELS_VARIABLE: str(made.label_capacity)}),
            )
        }
        for number in range(rounds):
            for setup in SETUPS:
                yield _run(comparison, setup, pairs[setup.planned], number, folder)


def _run(comparison: Comparison, setup: SetUp, pair: Engines, number: int, folder: Path) -> Run:
    settings = setup.settings(comparison.made, comparison.environment_concurrency, comparison.speed)
    name = f"{setup.name}-{number}"
    with ExitStack() as stack:
        at = None
        if setup.service:
            at = Service(stack.enter_context(service([one.name for one in pair.endpoints])), name)
        wall, cpu = time.perf_counter(), pair.cpu_s()
        conducted: Conducted = asyncio.run(
            conduct(
                make_plan(comparison.workload),
                settings,
                pair.endpoints,
                tokens=TokenSource(0, 1000, 30000),
                folder=folder / name,
                traces=[],
                service=at,
                flush_cache=True,
            )
        )
        wall, cpu = time.perf_counter() - wall, pair.cpu_s() - cpu
    if conducted.ending.status != "completed":
        raise StoppedError(f"{setup.name}: {conducted.ending.reason}")
    return Run(
        number, setup, settings.sample_concurrency, conducted.metrics, wall, cpu, conducted.client.cpu_s
    )
